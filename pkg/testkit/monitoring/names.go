package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// metricName matches metric names: ours, and others that our dashboards may show.
var metricName = regexp.MustCompile(`\b(kubeproxy|vicinity|apiserver_admission|rest_client|process|go)_[a-z0-9_]+`)

// histogramSuffix matches the suffixes of a histogram's series.
var histogramSuffix = regexp.MustCompile(`_(bucket|sum|count)$`)

// CheckNames checks that each metric in the files is gathered, and that each metric in shown is in the dashboard or an
// alert. The gatherer must have a series of every metric.
func (f Files) CheckNames(t *testing.T, gatherer prometheus.Gatherer, shown []string) {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	gathered := map[string]bool{}
	for _, family := range families {
		gathered[family.GetName()] = true
	}
	used := map[string]bool{}
	for _, file := range []string{f.dashboard(), f.rules(), f.ruleTests()} {
		for _, name := range metricName.FindAllString(read(t, file), -1) {
			family := histogramSuffix.ReplaceAllString(name, "")
			if !gathered[name] && !gathered[family] {
				t.Errorf("%s uses %s, which does not exist", file, name)
			}
			if file != f.ruleTests() {
				used[name], used[family] = true, true
			}
		}
	}
	if len(shown) == 0 {
		t.Error("no metrics to check")
	}
	for _, name := range shown {
		if !used[name] {
			t.Errorf("%s is neither in the dashboard nor in an alert", name)
		}
	}
}

// labelMatcher matches a label matcher.
var labelMatcher = regexp.MustCompile(`\b([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)

// prometheusLabels are the labels that Prometheus, its alerts or a histogram's buckets add.
var prometheusLabels = []string{"job", "instance", "alertname", "alertstate", "severity", "le"}

// CheckLabels checks that each label and each value in a label matcher exists in some series. The gatherer must have a
// series of every value. Alternatives may be separated by |, outside of all brackets.
func (f Files) CheckLabels(t *testing.T, gatherer prometheus.Gatherer) {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]string{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				values[label.GetName()] = append(values[label.GetName()], label.GetValue())
			}
		}
	}
	for _, file := range []string{f.dashboard(), f.rules()} {
		found := labelMatcher.FindAllStringSubmatch(strings.ReplaceAll(read(t, file), `\"`, `"`), -1)
		if len(found) == 0 {
			t.Errorf("%s has no label matcher", file)
		}
		for _, label := range found {
			if !slices.Contains(prometheusLabels, label[1]) && !allMatch(label[2], label[3], values[label[1]]) {
				t.Errorf("%s: no series has the label and value of %s", file, label[0])
			}
		}
	}
}

// allMatch reports whether the value of a matcher, or each alternative of it, is one of the values.
func allMatch(operator, value string, values []string) bool {
	if !strings.HasSuffix(operator, "~") {
		return slices.Contains(values, value)
	}
	for alternative := range strings.SplitSeq(value, "|") {
		if !slices.ContainsFunc(values, regexp.MustCompile("^(?:"+alternative+")$").MatchString) {
			return false
		}
	}
	return true
}
