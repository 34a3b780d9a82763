package metrics

import (
	"context"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// registeredNames returns the names of everything that a recorder registers, but for what every Go program has.
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
			t.Fatalf("the library describes a metric in other words: %s", desc)
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
	ours, _, found := strings.Cut(string(text), "## What kube-proxy has, and we have not")
	if !found {
		t.Fatal("README.md no longer has the section of what we have not")
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
		t.Errorf("only %d metrics are documented: is the README's table read rightly?", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-documented +registered):\n%s", diff)
	}
}

// kubeProxys are the names that Prometheus' linter would not choose. They are kube-proxy's.
var kubeProxys = map[string]string{
	NoLocalEndpointsName: "non-counter metrics should not have \"_total\" suffix",
}

func TestThePrometheusLinterHasNothingToSayAboutOurNames(t *testing.T) {
	problems, err := testutil.GatherAndLint(withAllSeries().registry, documented(t)...)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, problem := range problems {
		said[problem.Metric] = problem.Text
	}
	if diff := cmp.Diff(kubeProxys, said); diff != "" {
		t.Errorf("problems (-known +said):\n%s", diff)
	}
}

func TestTypesAndLabelsAreDocumentedAsTheyAre(t *testing.T) {
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
			t.Errorf("%s has no series: withAllSeries forgets it", name)
		}
	}
}

// withAllSeries returns a recorder in which every metric has a series.
func withAllSeries() *Recorder {
	r, moment := NewRecorder(), time.Unix(1700000000, 0)
	r.SyncQueued(moment)
	r.SyncDone(moment, true, 1)
	r.ServicePortsByReason(map[PortReason]int{{"IPv4", PolicyInternal, "AllEndpoints"}: 1})
	r.WatchInterrupted("services", moment)
	r.Build("v1", "go1")
	apiResults{r}.Increment(context.Background(), "200", "GET", "localhost")
	apiLatencies{r}.Observe(context.Background(), "GET", url.URL{Host: "localhost"}, time.Second)
	return r
}
