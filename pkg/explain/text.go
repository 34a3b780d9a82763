package explain

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
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
	fmt.Fprintln(page, headline(port))
	if len(port.Frontends) > 0 {
		writeLines(page, "frontends", port.Frontends)
	} else {
		writeLines(page, "frontends", []string{"none"})
	}
	writeLines(page, "outcome", []string{reasoned(port.Message, port.Outcome)})
	if port.AffinitySeconds > 0 {
		writeLines(page, "affinity", []string{affinity(port.AffinitySeconds)})
	}
	writeLines(page, "cluster", choiceLines(port.Cluster))
	if port.Local != nil {
		writeLines(page, "local", choiceLines(*port.Local))
	}
	writeLines(page, "left out", excludedLines(port.Excluded))
	writeLines(page, "warning", port.Warnings)
}

// headline names the port: "default/web http 80/TCP IPv4 on node-a1".
func headline(port Port) string {
	words := []string{port.Service}
	if port.Port != "" {
		words = append(words, port.Port)
	}
	words = append(words, fmt.Sprintf("%d/%s", port.Number, port.Protocol), port.Family)
	if port.Node != "" {
		words = append(words, "on", port.Node)
	}
	return strings.Join(words, " ")
}

// writeLines writes one line for each value, the first of them behind the label.
func writeLines(page *bytes.Buffer, label string, values []string) {
	for _, value := range values {
		fmt.Fprintf(page, "  %-*s%s\n", column-2, label, value)
		label = ""
	}
}

// choiceLines tells the tier, if there is one, then the reason, then the endpoints.
func choiceLines(choice Choice) []string {
	var lines []string
	if choice.Tier != "" {
		lines = append(lines, choice.Tier)
	}
	lines = append(lines, reasoned(choice.Message, choice.Reason))
	for _, endpoint := range choice.Endpoints {
		lines = append(lines, "→ "+endpoint)
	}
	return lines
}

// excludedLines tells of each endpoint why it is left out, with the sentences below each other.
func excludedLines(excluded []Excluded) []string {
	width := 0
	for _, e := range excluded {
		width = max(width, len(e.Endpoint))
	}
	lines := make([]string, 0, len(excluded))
	for _, e := range excluded {
		lines = append(lines, fmt.Sprintf("✗ %-*s  %s", width, e.Endpoint, reasoned(e.Message, e.Reason)))
	}
	return lines
}

// reasoned puts the stable code behind the sentence: the one is for reading, the other for looking up.
func reasoned(sentence, code string) string { return sentence + " [" + code + "]" }

func affinity(seconds int) string {
	return fmt.Sprintf("A client keeps its endpoint for %s after its newest connection.", duration(seconds))
}

// duration writes 3h for what Go calls 3h0m0s.
func duration(seconds int) string {
	text := (time.Duration(seconds) * time.Second).String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}
