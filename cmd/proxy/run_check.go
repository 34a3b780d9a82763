package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/daemon"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
)

// nodeTimeout is how long 'run --check' waits for what is known of its Node.
const nodeTimeout = 15 * time.Second

// checkReport is what 'run --check' prints.
//
// Its JSON names are an interface: scripts read them.
type checkReport struct {
	Starts bool   `json:"starts"`
	File   string `json:"file"`
	Node   string `json:"node"`
	// Settings are about the file, OnNode about this node. Own are the settings of our own that the file has, by field.
	Settings []config.Verdict  `json:"settings"`
	Own      map[string]string `json:"own"`
	OnNode   []config.Verdict  `json:"onNode"`
}

// runCheck says what would change, and changes nothing.
func runCheck(ctx context.Context, stdout, stderr io.Writer, flags *runFlags, output string) error {
	if flags.path == "" {
		return cli.UsageError{Err: errors.New("--check needs --config FILE: kube-proxy's file, of which it says what would change")}
	}
	compared, err := config.Compare(flags.path)
	if err != nil {
		return err
	}
	report := checkReport{File: flags.path, Settings: []config.Verdict{}, OnNode: []config.Verdict{}, Own: map[string]string{}}
	report.Settings = append(report.Settings, compared.Verdicts...)
	if !compared.Starts() {
		flags.path = "" // the node is looked at all the same, as the flags and defaults say
	}
	if err := flags.read(); err != nil {
		return err
	}
	if err := flags.Validate(); err != nil {
		return cli.UsageError{Err: err}
	}
	report.Node = flags.node
	if flags.file != nil {
		maps.Copy(report.Own, flags.file.Own)
	}
	node := daemon.Check(ctx, &flags.settings, flags.ownTables == "auto")
	report.OnNode = append(report.OnNode, node.Verdicts...)
	if compared.Starts() {
		object, verdict := flags.ownNode(ctx, stderr)
		report.OnNode = append(report.OnNode, verdict)
		for _, family := range node.Families {
			report.OnNode = append(report.OnNode,
				config.CompareNodePorts(compared.NodePorts, flags.settings.NodePorts, family, object, node.Addresses))
		}
	}
	report.Starts = !slices.ContainsFunc(slices.Concat(report.Settings, report.OnNode), func(v config.Verdict) bool {
		return v.Outcome == config.Refused
	})
	if output == "text" {
		report.print(stdout)
	} else if err := explain.Print(stdout, output, report); err != nil {
		return err
	}
	if !report.Starts {
		return cli.Exit(cli.Usage)
	}
	if lack := flags.noService(); lack != "" {
		return unreadableError{errors.New(lack)}
	}
	return flags.incomplete(explain.Query{})
}

// ownNode reads the Node, if it is said where from. What is left out of what is read with it is a warning.
func (f *stateFlags) ownNode(ctx context.Context, stderr io.Writer) (*model.Node, config.Verdict) {
	verdict := config.Verdict{Subject: "Node", Value: f.node, Outcome: config.Unknown}
	if err := f.checkOrigin(); err != nil {
		verdict.Here, verdict.Do = "it is not read", "give --kubeconfig FILE, or --manifests PATH"
		return nil, verdict
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	change, err := f.load(ctx, stderr, cluster.OwnNode)
	node := change.Nodes[f.node]
	switch {
	case err != nil:
		verdict.Here, verdict.Do = err.Error(), "give --kubeconfig FILE of one that this node can use; the proxy's own must work where it runs"
	case node == nil:
		verdict.Here, verdict.Do = "there is none of this name in "+f.origin(), "--node says under which name this node is known"
	default:
		verdict.Outcome, verdict.Here = config.Same, "names "+addresses(node)
	}
	return node, verdict
}

func addresses(node *model.Node) string {
	var texts []string
	for _, addr := range node.Addresses {
		texts = append(texts, addr.String())
	}
	return cmp.Or(strings.Join(texts, ", "), "no address")
}

// print writes the report for a person. What stays as it was is only counted.
func (r *checkReport) print(stdout io.Writer) {
	table := verdictTable{{"LINE", "SETTING", "IN THE FILE", "HERE"}}
	same := 0
	for _, verdict := range r.Settings {
		if verdict.Outcome == config.Same {
			same++
			continue
		}
		table = append(table, rowsOf(&verdict, cmp.Or(strings.TrimPrefix(fmt.Sprint(verdict.Line), "0"), "-"))...)
	}
	table.print(stdout)
	printable.Fprintf(stdout, "Settings of the file that do what they do in kube-proxy: %d. What is kube-proxy's default is not listed.\n\n",
		same)
	if len(r.Own) > 0 {
		printable.Fprintf(stdout, "Settings of our own in the file: %s.\n\n", strings.Join(slices.Sorted(maps.Keys(r.Own)), ", "))
	}
	table = verdictTable{{"", "ON THIS NODE", "IS", "HERE"}}
	for _, verdict := range r.OnNode {
		table = append(table, rowsOf(&verdict, "")...)
	}
	table.print(stdout)
	if r.Starts {
		printable.Fprintf(stdout, "\nThe proxy would start with this file on this node. Nothing was changed.\n")
		return
	}
	printable.Fprintf(stdout, "\nThe proxy would not start: see what is refused. Nothing was changed.\n")
}

// verdictTable are rows of which the last cell is wrapped.
type verdictTable [][4]string

// A value is cut behind widestValue letters, and a subject behind widestSubject; JSON has them whole. The last cell has what
// is left of lineWidth, but leastHere at least.
const widestSubject, widestValue, lineWidth, leastHere = 50, 44, 120, 40

func rowsOf(v *config.Verdict, line string) verdictTable {
	here := v.Here
	if slices.Contains([]config.Outcome{config.Refused, config.Unknown, config.Leftover}, v.Outcome) {
		here = string(v.Outcome) + ": " + here
	}
	rows := verdictTable{{line, cut(v.Subject, widestSubject), cmp.Or(cut(v.Value, widestValue), "-"), here}}
	if v.Do != "" {
		rows = append(rows, [4]string{"", "", "", "to do: " + v.Do})
	}
	return rows
}

func cut(text string, widest int) string {
	if runes := []rune(text); len(runes) > widest {
		return string(runes[:widest-1]) + "…"
	}
	return text
}

func (t verdictTable) print(stdout io.Writer) {
	var widths [3]int
	for _, row := range t {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	here := max(leastHere, lineWidth-widths[0]-widths[1]-widths[2]-6)
	for _, row := range t {
		for i, part := range wrapped(row[3], here) {
			if i > 0 {
				row = [4]string{}
			}
			line := fmt.Sprintf("%*s  %-*s  %-*s  %s", widths[0], row[0], widths[1], row[1], widths[2], row[2], part)
			printable.Fprintf(stdout, "%s\n", strings.TrimRight(line, " "))
		}
	}
}

// wrapped breaks a text between words into lines of at most so many letters, if no word is longer.
func wrapped(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
