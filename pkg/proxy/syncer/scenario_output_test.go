package syncer_test

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// The commands that sync, and those that print the results.

func (s *scenario) cmdSync(ts *testscript.TestScript, _ []string) {
	loaded, err := s.manifests.Load()
	ts.Check(err)
	s.apply(loaded.Change)
	report, err := s.proxy.Sync(s.t.Context())
	ts.Check(err)
	ts.Check(report.CleanupErr)
	for _, problem := range loaded.NewProblems {
		if !problem.Code.IsInvalidInput() {
			continue // printSkipped prints findings about objects that were read
		}
		fmt.Fprintf(ts.Stdout(), "rejected: %s\n", problem)
	}
	printSkipped(ts.Stdout(), loaded.Change)
	printReport(ts.Stdout(), report)
	s.printHealthChecks(ts.Stdout(), report.Full)
	checkLikeFreshStartOf(s.t, s.node, s.config, s.kernel.inMemory(), s.everything)
	s.kernel.expectSameListing(s.t)
}

func printSkipped(w io.Writer, change model.Change) {
	for _, name := range slices.SortedFunc(maps.Keys(change.Services), model.ObjectName.Compare) {
		if service := change.Services[name]; service != nil {
			for _, finding := range service.Findings {
				if finding.Code == model.PartiallyIgnored {
					fmt.Fprintf(w, "skipped in Service %s: %s\n", name, finding.Sentence())
				}
			}
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(change.Slices), model.ObjectName.Compare) {
		if slice := change.Slices[name]; slice != nil {
			for _, finding := range slice.Findings {
				fmt.Fprintf(w, "skipped in EndpointSlice %s: %s\n", name, finding.Sentence())
			}
		}
	}
}

func printReport(w io.Writer, report syncer.Report) {
	what := "synced"
	if report.Full {
		what = "synced everything:"
	}
	fmt.Fprintf(w, "%s %d of %d Services: %d elements added, %d deleted\n", what, report.Decided, report.Applied,
		report.Added[model.IPv4]+report.Added[model.IPv6], report.Deleted[model.IPv4]+report.Deleted[model.IPv6])
	if report.Contested > 0 {
		fmt.Fprintf(w, "contested frontends: %d\n", report.Contested)
	}
}

// printHealthChecks prints all of them if any has changed, or after a full sync.
func (s *scenario) printHealthChecks(w io.Writer, full bool) {
	checks := s.checks.all
	if changed := s.checks.takeChanged(); !changed && !full || full && len(checks) == 0 {
		return
	}
	for _, name := range slices.SortedFunc(maps.Keys(checks), model.ObjectName.Compare) {
		check := checks[name]
		fmt.Fprintf(w, "health check of %s on port %d:", name, check.Port)
		for _, family := range slices.Sorted(maps.Keys(check.Endpoints)) {
			fmt.Fprintf(w, " %s %d", family, check.Endpoints[family])
		}
		fmt.Fprintln(w)
	}
	if len(checks) == 0 {
		fmt.Fprintln(w, "no health checks")
	}
}

func (s *scenario) cmdTables(ts *testscript.TestScript, args []string) {
	text := s.kernel.inMemory().text(s.t)
	if len(args) == 1 {
		text, _, _ = strings.Cut(text, "\ntable ip6 ")
	}
	_, err := ts.Stdout().Write([]byte(text))
	ts.Check(err)
}

// cmdElements prints `ip services 10.96.0.10 . tcp . 80 : fe00:1`, without the elements of tables without any Service.
func (s *scenario) cmdElements(ts *testscript.TestScript, args []string) {
	for _, name := range args {
		if !slices.ContainsFunc(ruleset.StaticSets, func(set ruleset.Set) bool { return set.Name == name }) {
			ts.Fatalf("unknown set %q", name)
		}
	}
	kernel := &memoryKernel{}
	mustSync(s.t, newProxy(kernel))
	static := linesOfElements(kernel.text(s.t))
	stdout := ts.Stdout() // even if there is nothing to print: it replaces the output of an earlier command
	for _, line := range linesOfElements(s.kernel.inMemory().text(s.t)) {
		if len(args) > 0 && !slices.Contains(args, strings.Fields(line)[1]) || slices.Contains(static, line) {
			continue
		}
		fmt.Fprintln(stdout, line)
	}
}

// linesOfElements returns the elements of printed tables: family, set and element.
func linesOfElements(text string) []string {
	var lines []string
	eachBlock(text, func(family, header, body string) {
		_, name, _ := strings.Cut(header, " ")
		_, elements, found := strings.Cut(body, "elements = { ")
		if !found {
			return
		}
		elements, _, _ = strings.Cut(elements, " }\n")
		for element := range strings.SplitSeq(elements, ",") {
			lines = append(lines, fmt.Sprintf("%s %s %s", family, name, strings.TrimSpace(element)))
		}
	})
	return lines
}

func (s *scenario) cmdChain(ts *testscript.TestScript, args []string) {
	printed := 0
	eachBlock(s.kernel.inMemory().text(s.t), func(family, header, body string) {
		if kind, name, _ := strings.Cut(header, " "); kind != "chain" || !slices.Contains(args, name) {
			return
		}
		printed++
		fmt.Fprintf(ts.Stdout(), "%s %s\n", family, header)
		for line := range strings.Lines(body) {
			if rule := strings.TrimSpace(line); rule != "}" && rule != "" {
				fmt.Fprintf(ts.Stdout(), "\t%s\n", rule)
			}
		}
	})
	if printed < len(args) {
		ts.Fatalf("found %d chains of %v", printed, args)
	}
}

// eachBlock calls each for the sets, maps and chains of printed tables, with `set NAME`, `map NAME` or `chain NAME` as
// the header.
func eachBlock(text string, each func(family, header, body string)) {
	for table := range strings.SplitSeq(text, "\n}\n") {
		first, blocks, _ := strings.Cut(strings.TrimPrefix(table, "\n"), "\n")
		for block := range strings.SplitSeq(blocks, "\n\n") {
			header, body, _ := strings.Cut(strings.TrimSpace(block), " {\n")
			each(strings.Fields(first + " . .")[1], header, body)
		}
	}
}

func (s *scenario) cmdExplain(ts *testscript.TestScript, args []string) {
	cluster := model.NewCluster(s.node)
	cluster.Apply(s.everything)
	var query explain.Query
	if len(args) == 1 {
		query.Service = model.ObjectName{Namespace: "default", Name: args[0]}
	}
	stream := explain.NewStream(ts.Stdout(), "text")
	ts.Check(stream.Write(explain.Clients{}.Ports(cluster, query)))
	ts.Check(stream.Close())
}
