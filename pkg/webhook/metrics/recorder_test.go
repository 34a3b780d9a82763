package metrics

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/server"
)

func newRecorder(t *testing.T) (*Recorder, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	r, err := New(registry)
	if err != nil {
		t.Fatal(err)
	}
	return r, registry
}

// gather returns the value of each series, by its name and label values. A histogram's value is its count.
func gather(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := []string{strings.TrimPrefix(family.GetName(), "vicinity_webhook_")}
			for _, label := range metric.GetLabel() {
				name = append(name, label.GetValue())
			}
			values[strings.Join(name, " ")] = valueOf(metric)
		}
	}
	return values
}

func valueOf(metric *dto.Metric) float64 {
	if histogram := metric.GetHistogram(); histogram != nil {
		return float64(histogram.GetSampleCount())
	}
	return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
}

// initialSeries returns all initial series.
func initialSeries() map[string]float64 {
	values := map[string]float64{
		"requests_in_flight": 0, "configuration_valid": 1,
		"topology_slices": 0, "topology_nodes": 0, "topology_keys_unpublished": 0, "topology_lag_seconds": 0,
		"objects_written_total create topologyslices": 0,
		"objects_written_total update topologyslices": 0,
		"objects_written_total delete topologyslices": 0,
		"objects_written_total create servicedemands": 0,
		"objects_written_total update servicedemands": 0,
		"objects_written_total delete servicedemands": 0,
		"demand_queue_depth":                          0,
		"demand_unreported_nodes":                     0,
		"demand_longest_queued_seconds":               0,
		"demand_change_points_total":                  0,
		"internal_errors_total panic":                 0, "internal_errors_total unwritable": 0,
		"internal_errors_total topology": 0, "internal_errors_total demand": 0,
	}
	for _, outcome := range server.Outcomes() {
		for _, path := range server.Paths() {
			values["review_duration_seconds "+outcome+" "+path] = 0
		}
	}
	for _, rule := range rules.Rules() {
		values["violations_total deny "+string(rule.ID)], values["violations_total warn "+string(rule.ID)] = 0, 0
	}
	for _, source := range rules.DefaultSources() {
		values["defaulting_decisions_total none "+string(source)] = 0
		for _, setting := range rules.DefaultSettings() {
			values["defaulting_decisions_total "+string(setting)+" "+string(source)] = 0
		}
	}
	for _, operation := range certs.Operations() {
		values["internal_errors_total certificate_"+string(operation)] = 0
	}
	for _, reason := range server.RejectionReasons() {
		values["rejected_requests_total "+reason] = 0
	}
	return values
}

func TestInitialSeries(t *testing.T) {
	_, registry := newRecorder(t)
	if diff := cmp.Diff(initialSeries(), gather(t, registry)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// updates are calls of a recorder, with the series that each changes and their new values.
var updates = []struct {
	name string
	call func(r *Recorder)
	want map[string]float64
}{
	{
		"a review", func(r *Recorder) { r.Reviewed("/one", "denied", time.Millisecond) },
		map[string]float64{"review_duration_seconds denied /one": 1},
	},
	{"a decision", func(r *Recorder) { r.Decided("R2", "warn") }, map[string]float64{"violations_total warn R2": 1}},
	{"a default", func(r *Recorder) { r.Defaulted("namespace", "mode") }, map[string]float64{"defaulting_decisions_total mode namespace": 1}},
	{"no default", func(r *Recorder) { r.Defaulted("cluster", "") }, map[string]float64{"defaulting_decisions_total none cluster": 1}},
	{
		"a failed certificate operation", func(r *Recorder) { r.CertificateFailed(certs.ReadSecret, nil) },
		map[string]float64{"internal_errors_total certificate_read_secret": 1},
	},
	{"a failed publication", func(r *Recorder) { r.PublishFailed() }, map[string]float64{"internal_errors_total topology": 1}},
	{"a failure", func(r *Recorder) { r.Failed("panic") }, map[string]float64{"internal_errors_total panic": 1}},
	{"a rejection", func(r *Recorder) { r.Rejected("too_big") }, map[string]float64{"rejected_requests_total too_big": 1}},
	{"an unknown reason", func(r *Recorder) { r.Rejected("new") }, map[string]float64{"rejected_requests_total new": 1}},
	{"two reviews begin", func(r *Recorder) { r.InFlight(1); r.InFlight(1) }, map[string]float64{"requests_in_flight": 2}},
	{"a review ends", func(r *Recorder) { r.InFlight(1); r.InFlight(-1) }, map[string]float64{"requests_in_flight": 0}},
	{
		"the expiry of a certificate", func(r *Recorder) { r.CertificateExpires(time.Unix(1700000000, 0)) },
		map[string]float64{"certificate_expiry_timestamp_seconds served": 1.7e9},
	},
	{
		"the expiry of a CA", func(r *Recorder) { r.AuthorityExpires(time.Unix(2000000000, 0)) },
		map[string]float64{"certificate_expiry_timestamp_seconds authority": 2e9},
	},
	{
		"a new configuration", func(r *Recorder) { r.ConfigurationUpdated(time.Unix(1700000000, 500_000_000)) },
		map[string]float64{"configuration_last_success_timestamp_seconds": 1.7000000005e9},
	},
	{
		"an invalid configuration", func(r *Recorder) { r.ConfigurationFailed() },
		map[string]float64{"configuration_valid": 0},
	},
	{
		"a valid configuration after an invalid one", func(r *Recorder) { r.ConfigurationFailed(); r.ConfigurationUpdated(time.Unix(1, 0)) },
		map[string]float64{"configuration_last_success_timestamp_seconds": 1},
	},
	{
		"a topology", func(r *Recorder) { r.Published(time.Unix(5, 0), 3, 250, 1, time.Second) },
		map[string]float64{
			"topology_slices": 3, "topology_nodes": 250, "topology_keys_unpublished": 1, "topology_lag_seconds": 1,
			"topology_published_timestamp_seconds": 5,
		},
	},
	{
		"an unchanged topology", func(r *Recorder) { r.Published(time.Unix(6, 0), 3, 250, 0, 0) },
		map[string]float64{"topology_slices": 3, "topology_nodes": 250, "topology_published_timestamp_seconds": 6},
	},
	{
		"the end of a term", func(r *Recorder) { r.Published(time.Unix(6, 0), 3, 250, 1, 0); r.LeadEnded() },
		map[string]float64{"topology_published_timestamp_seconds": 6},
	},
	{
		"the end of measuring", func(r *Recorder) {
			r.Measured(9, 10, 1, 0, map[[2]string]Demand{{"shop", "web"}: {1, 2}})
			r.DemandQueued(3, time.Minute)
			r.MeasuringEnded()
		},
		map[string]float64{},
	},
	{
		"measured demand", func(r *Recorder) {
			r.Measured(9, 10, 0, 2, map[[2]string]Demand{{"shop", "web"}: {1, 2}, {"shop", "gone"}: {3, 4}, {"shop", "even"}: {2, 60}})
			r.Measured(8, 10, 2, 1, map[[2]string]Demand{{"shop", "web"}: {2.7, 6000}, {"shop", "even"}: {0, 60}})
		},
		map[string]float64{
			"demand_overload_ratio shop web": 2.7, "demand_connections_per_second shop web": 100, "demand_reporting_nodes_ratio": 0.8,
			"demand_connections_per_second shop even": 1, "demand_change_points_total": 3, "demand_unreported_nodes": 2,
		},
	},
	{
		"a backlog", func(r *Recorder) { r.DemandQueued(3, time.Minute) },
		map[string]float64{"demand_queue_depth": 3, "demand_longest_queued_seconds": 60},
	},
	{
		"a written ServiceDemand", func(r *Recorder) { r.DemandPublished("update") },
		map[string]float64{"objects_written_total update servicedemands": 1},
	},
	{"a written TopologySlice", func(r *Recorder) { r.SliceWritten("delete") },
		map[string]float64{"objects_written_total delete topologyslices": 1}},
}

func TestRecorderUpdatesOnlyItsSeries(t *testing.T) {
	for _, c := range updates {
		t.Run(c.name, func(t *testing.T) {
			r, registry := newRecorder(t)
			want := gather(t, registry)
			c.call(r)
			maps.Copy(want, c.want)
			if diff := cmp.Diff(want, gather(t, registry)); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

// updatedRegistry returns the registry of a recorder after all updates.
func updatedRegistry(t *testing.T) *prometheus.Registry {
	t.Helper()
	r, registry := newRecorder(t)
	for _, c := range updates {
		c.call(r)
	}
	return registry
}

func TestEveryMetricIsUpdatedInATest(t *testing.T) {
	updated := map[string]bool{}
	for _, c := range updates {
		for series := range c.want {
			name, _, _ := strings.Cut(series, " ")
			updated["vicinity_webhook_"+name] = true
		}
	}
	for name := range documented(t) {
		if !updated[name] {
			t.Errorf("no test changes %s", name)
		}
	}
}

// documented returns the rows of the README's first table: type and labels of each metric.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*?) ?\\|").FindAllStringSubmatch(string(text), -1) {
		rows[row[1]] = row[2] + " " + row[3]
	}
	return rows
}

func TestREADMEListsAllMetrics(t *testing.T) {
	families, err := updatedRegistry(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, family := range families {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		got[family.GetName()] = strings.ToLower(family.GetType().String()) + " " + strings.Join(labels, ", ")
	}
	want := documented(t)
	for name, row := range want { // Prometheus sorts labels
		kind, labels, _ := strings.Cut(row, " ")
		sorted := strings.Split(labels, ", ")
		slices.Sort(sorted)
		want[name] = kind + " " + strings.Join(sorted, ", ")
	}
	const numMetrics = 22
	if len(want) != numMetrics {
		t.Errorf("%d metrics are documented, want %d", len(want), numMetrics)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-documented +registered):\n%s", diff)
	}
}

func TestPrometheusLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(updatedRegistry(t))
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}

func TestReviewDurationBuckets(t *testing.T) {
	r, registry := newRecorder(t)
	paths := slices.Sorted(slices.Values(server.Paths()))
	r.Reviewed(paths[0], "allowed", 200*time.Microsecond)
	r.Reviewed(paths[0], "allowed", 4*time.Millisecond)
	r.Reviewed(paths[0], "allowed", 3*time.Second)
	name := reviewDuration.name
	bounds := strings.Fields("0.0001 0.00025 0.0005 0.001 0.0025 0.005 0.0075 0.01 0.025 0.05 0.1 0.25 0.5 1 2 +Inf")
	var want strings.Builder
	want.WriteString("# HELP " + name + " " + reviewDuration.help + "\n# TYPE " + name + " histogram\n")
	for i := range len(server.Outcomes()) * len(paths) {
		counts, sum := make([]int, len(bounds)), "0"
		if i == 0 {
			counts, sum = []int{0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3}, "3.0042"
		}
		series := `{outcome="` + server.Outcomes()[i/len(paths)] + `",path="` + paths[i%len(paths)] + `"`
		for b, bound := range bounds {
			want.WriteString(name + "_bucket" + series + `,le="` + bound + `"} ` + strconv.Itoa(counts[b]) + "\n")
		}
		want.WriteString(name + "_sum" + series + "} " + sum + "\n")
		want.WriteString(name + "_count" + series + "} " + strconv.Itoa(counts[len(bounds)-1]) + "\n")
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want.String()), name); err != nil {
		t.Error(err)
	}
}

func TestNewFailsIfRegisteredTwice(t *testing.T) {
	_, registry := newRecorder(t)
	if _, err := New(registry); err == nil || !strings.Contains(err.Error(), "register the webhook's metrics") {
		t.Errorf("New() = %v", err)
	}
}

func TestConcurrentScrapes(t *testing.T) {
	r, registry := newRecorder(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				r.InFlight(1)
				r.Reviewed("/one", "allowed", time.Millisecond)
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
				r.InFlight(-1)
			}
		})
	}
	group.Wait()
	got := gather(t, registry)
	if got["review_duration_seconds allowed /one"] != 200 || got["requests_in_flight"] != 0 {
		t.Errorf("counted %v reviews and %v in flight, want 200 and 0", got["review_duration_seconds allowed /one"], got["requests_in_flight"])
	}
}
