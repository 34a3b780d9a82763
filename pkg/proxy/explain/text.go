package explain

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// column is where the values begin: behind the widest label and two spaces on either side.
const column = 13

// Text writes the ports for a person: one block each, with an empty line between them.
func Text(w io.Writer, ports []Port) error {
	var page bytes.Buffer
	for i, port := range ports {
		if i > 0 {
			page.WriteByte('\n')
		}
		writePort(&page, port)
	}
	if len(ports) == 0 {
		page.WriteString("no Service ports\n")
	}
	if _, err := w.Write(page.Bytes()); err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	return nil
}

func writePort(page *bytes.Buffer, port Port) {
	printable.Fprintf(page, "%s\n", headline(port))
	writeLines(page, "refused", refusedLines(port.Refused))
	if port.Outcome == outcomeLost {
		writeLines(page, "outcome", []string{reasoned(port.Message, port.Outcome)})
	}
	if port.Name != "" {
		writeLines(page, toDNS, []string{port.Name, reasoned(port.Message, port.Outcome)})
	}
	writeLines(page, toClusterIP, trafficLines(port, toClusterIP))
	writeLines(page, toExternal, trafficLines(port, toExternal))
	writeLines(page, "sources", sourceLines(port.AllowedSources))
	writeLines(page, "affinity", affinityLines(port))
	writeLines(page, "health", healthLines(port.HealthCheck))
	writeLines(page, choiceCluster, choiceLines(port.Cluster))
	if port.Local != nil {
		writeLines(page, choiceLocal, choiceLines(*port.Local))
	}
	if port.Load != nil && port.Load.Message != "" {
		writeLines(page, "load", []string{port.Load.Message, port.Load.Demand})
	}
	if port.NodesFrom != "" {
		writeLines(page, "nodes", []string{"where other nodes are is known from " + SourceInWords(port.NodesFrom)})
	}
	writeLines(page, "left out", excludedLines(port.Excluded))
	writeLines(page, "slices", unusedLines(port.UnusedSlices))
	writeLines(page, "warning", port.Warnings)
}

// headline names the port: "default/web http 80/TCP IPv4 on node-a1".
func headline(port Port) string {
	words := []string{port.Service}
	if port.Port != "" {
		words = append(words, port.Port)
	}
	if port.Protocol != "" {
		words = append(words, fmt.Sprintf("%d/%s", port.Number, port.Protocol))
	}
	words = append(words, port.Family)
	if port.Node != "" {
		words = append(words, "on", port.Node)
	}
	return strings.Join(words, " ")
}

// writeLines writes one line for each value, the first of them behind the label.
func writeLines(page *bytes.Buffer, label string, values []string) {
	for _, value := range values {
		printable.Fprintf(page, "  %-*s%s\n", column-2, label, value)
		label = ""
	}
}
