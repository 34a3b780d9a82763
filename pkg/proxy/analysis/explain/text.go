package explain

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// valueColumn is where the values start: after the widest label and two spaces on either side.
const valueColumn = 13

func writePort(page *bytes.Buffer, port PortReport) {
	sanitize.Fprintf(page, "%s\n", headline(port))
	if port.Alike != nil && port.Alike.Differences != "" {
		writeLines(page, "alike", []string{port.Alike.Differences})
	}
	writeLines(page, "rejected", rejectionLines(port.Rejected))
	if port.Address != "" {
		writeLines(page, toAddress, []string{withCode(port.Message, port.Outcome)})
		return
	}
	if port.Outcome == outcomeOwnedByOther {
		writeLines(page, "outcome", []string{withCode(port.Message, port.Outcome)})
	}
	if port.Name != "" {
		writeLines(page, toDNS, []string{port.Name, withCode(port.Message, port.Outcome)})
	}
	writeLines(page, toClusterIP, trafficLines(port, toClusterIP))
	writeLines(page, toExternal, trafficLines(port, toExternal))
	writeLines(page, toLoopback, trafficLines(port, toLoopback))
	writeLines(page, "sources", sourceLines(port.AllowedSources))
	writeLines(page, "affinity", affinityLines(port))
	writeLines(page, "health", healthLines(port.HealthCheck))
	writeLines(page, choiceCluster, choiceLines(port.Cluster))
	if port.Local != nil {
		writeLines(page, choiceLocal, choiceLines(*port.Local))
	}
	if port.Load != nil && port.Load.Message != "" {
		writeLines(page, "load", []string{port.Load.Message, port.Load.Demand})
		if port.Load.Assumed != "" {
			writeLines(page, "", []string{port.Load.Assumed})
		}
	}
	if port.TopologySource != "" {
		writeLines(page, "nodes", []string{"other nodes' labels come from " + TopologySourceText(port.TopologySource)})
	}
	writeLines(page, "excluded", excludedLines(port.Excluded))
	if port.IsCondensed {
		writeLines(page, "", []string{"--all lists each endpoint"})
	}
	writeLines(page, "slices", unusedLines(port.UnusedSlices))
	writeLines(page, "warning", port.Warnings)
}

// headline returns the title of a port: "default/web http 80/TCP IPv4 on node-a1".
func headline(port PortReport) string {
	words := []string{cmp.Or(port.Address, port.Service)}
	words = append(words, port.Protocols...)
	if port.Port != "" {
		words = append(words, port.Port)
	}
	if port.Protocol != "" {
		words = append(words, fmt.Sprintf("%d/%s", port.Number, port.Protocol))
	}
	words = append(words, port.Family)
	nodes := port.Node
	if port.Alike != nil {
		nodes = ListOrCount(append([]string{port.Node}, port.Alike.Nodes...))
	}
	if nodes != "" {
		words = append(words, "on", nodes)
	}
	return strings.Join(words, " ")
}

// ListOrCount lists a few names, and counts the rest if there are many.
func ListOrCount(names []string) string {
	const few = 4
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few-1], ", "), len(names)-few+1)
}

// writeLines writes one line for each value, the first of them after the label.
func writeLines(page *bytes.Buffer, label string, values []string) {
	for _, value := range values {
		sanitize.Fprintf(page, "  %-*s%s\n", valueColumn-2, label, value)
		label = ""
	}
}
