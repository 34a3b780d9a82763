package metrics

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// registeredNames returns the names of everything that a recorder registers, except for the metrics of every Go
// program.
func registeredNames(t *testing.T) []string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		NewRecorder().registry.Describe(descs)
	}()
	var all []string
	for desc := range descs {
		found := regexp.MustCompile(`fqName: "([^"]*)"`).FindStringSubmatch(desc.String())
		if found == nil {
			t.Fatalf("the library describes a metric in another format: %s", desc)
		}
		if !strings.HasPrefix(found[1], "go_") && !strings.HasPrefix(found[1], "process_") {
			all = append(all, found[1])
		}
	}
	return all
}

// documented returns the metrics in the first two tables of the README, in their order.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	ours, _, found := strings.Cut(string(text), "## kube-proxy metrics not provided")
	if !found {
		t.Fatal("README.md no longer has the section of kube-proxy metrics that are not provided")
	}
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(ours, -1) {
		names = append(names, row[1])
	}
	return names
}

func TestEveryMetricIsDocumentedAndEveryDocumentedOneExists(t *testing.T) {
	want, got := documented(t), registeredNames(t)
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 25 {
		t.Errorf("only %d metrics are documented: is the README's table parsed correctly?", len(want))
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-documented +registered):\n%s", diff)
	}
}

// The README has the rows in their order, with their types and labels. It also describes each metric; the description
// of a new row is its help until it is changed.
func TestTheREADMEHasTheRowsOfTheTable(t *testing.T) {
	given, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	meaning := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [a-z]+ \\| [^|]*\\| (.*) \\|\n")
	for _, found := range row.FindAllStringSubmatch(string(given), -1) {
		meaning[found[1]] = found[2]
	}
	var tables [2]strings.Builder // kube-proxy's, and ours
	for _, declared := range rows {
		row, table := declared.declaration(), &tables[0]
		if strings.HasPrefix(row.name, "vicinity_") {
			table = &tables[1]
		}
		labels := " "
		if len(row.labels) > 0 {
			labels = " `" + strings.Join(row.labels, "`, `") + "` "
		}
		fmt.Fprintf(table, "| `%s` | %s |%s| %s |\n", row.name, row.kind, labels, cmp.Or(meaning[row.name], row.help))
	}
	const head = "| metric | type | labels | meaning |\n|---|---|---|---|\n"
	parts := strings.Split(row.ReplaceAllString(string(given), ""), head)
	if len(parts) != 3 {
		t.Fatalf("README.md has %d tables of metrics, want 2", len(parts)-1)
	}
	golden.File(t, "README.md", parts[0]+head+tables[0].String()+parts[1]+head+tables[1].String()+parts[2])
}

// kubeProxyNames are names that Prometheus' linter rejects. They are kube-proxy's.
var kubeProxyNames = map[string]string{
	NoLocalEndpoints.name: "non-counter metrics should not have \"_total\" suffix",
}

func TestThePrometheusLinterAcceptsOurNames(t *testing.T) {
	problems, err := testutil.GatherAndLint(withAllSeries().registry, documented(t)...)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, problem := range problems {
		got[problem.Metric] = problem.Text
	}
	if diff := gocmp.Diff(kubeProxyNames, got); diff != "" {
		t.Errorf("problems (-known +got):\n%s", diff)
	}
}

func TestTypesAndLabelsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := withAllSeries().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, family := range families {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		row := regexp.MustCompile("(?m)^\\| `" + family.GetName() + "` \\| ([a-z]+) \\| ([^|]*?) ?\\|").FindStringSubmatch(string(text))
		if row == nil {
			continue // of every Go program
		}
		documentedLabels := strings.Split(row[2], ", ")
		slices.Sort(documentedLabels)
		seen[family.GetName()] = true
		if want := strings.ToLower(family.GetType().String()); row[1] != want {
			t.Errorf("%s is a %s, and documented as a %s", family.GetName(), want, row[1])
		}
		if want, got := strings.Join(labels, ", "), strings.Join(documentedLabels, ", "); want != got {
			t.Errorf("%s has the labels %q, and is documented with %q", family.GetName(), want, got)
		}
	}
	for _, name := range documented(t) {
		if !seen[name] {
			t.Errorf("%s has no series: withAllSeries does not know its kind", name)
		}
	}
}

// withAllSeries returns a recorder in which every metric has a series.
func withAllSeries() *Recorder {
	r := NewRecorder()
	for _, declared := range rows {
		values := slices.Repeat([]string{"x"}, len(declared.declaration().labels))
		switch metric := declared.(type) {
		case Counter:
			r.Add(metric, 1, values...)
		case Gauge:
			r.Set(metric, 1, values...)
		case Histogram:
			r.Observe(metric, time.Second, values...)
		case Collected:
			r.CollectFrom(metric, func(add Add) { add(1, values...) })
		}
	}
	return r
}
