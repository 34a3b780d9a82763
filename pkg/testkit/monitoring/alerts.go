package monitoring

import (
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Files are what a program is watched with, by their names in manifests/monitoring.
type Files struct {
	Rules, RuleTests, Dashboard string
	// Job is the scrape job that they are about.
	Job string
}

// CheckAlerts checks that Prometheus accepts the alerts, that they fire when they should, and that each says what
// happened and what to do.
func (f Files) CheckAlerts(t *testing.T) {
	t.Helper()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(monitoring, f.Rules))
	promtool(t, "test", "rules", filepath.Join(monitoring, f.RuleTests))
	tests := read(t, f.RuleTests)
	all := f.alerts(t)
	if len(all) < 10 {
		t.Fatalf("there are only %d alerts", len(all))
	}
	for _, alert := range all {
		alert.check(t, tests)
	}
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts returns the alerts of the rule file.
func (f Files) alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, f.Rules)), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// check tests what the person on call reads of an alert. The rule tests are those that should make it fire.
func (a alert) check(t *testing.T, tests string) {
	t.Helper()
	if a.Annotations["summary"] == "" || len(a.Annotations["description"]) < 100 {
		t.Errorf("%s: the summary is %q, the description %q", a.Alert, a.Annotations["summary"], a.Annotations["description"])
	}
	if severity := a.Labels["severity"]; severity != "critical" && severity != "warning" {
		t.Errorf("%s: severity %q", a.Alert, severity)
	}
	if a.For == "" {
		t.Errorf("%s fires at once: one bad scrape wakes the person on call", a.Alert)
	}
	if !strings.Contains(tests, `"`+a.Alert+`", alertstate="firing", severity=`) && !strings.Contains(tests, "alertname: "+a.Alert+"\n") {
		t.Errorf("%s: no rule test makes it fire", a.Alert)
	}
}
