package monitoring

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Files are the alerts and the dashboard of a program.
type Files struct {
	// Folder is their folder below manifests/monitoring.
	Folder string
	// Job is the scrape job of the program.
	Job string
}

func (f Files) rules() string     { return filepath.Join(f.Folder, "prometheus-rules.yaml") }
func (f Files) ruleTests() string { return filepath.Join(f.Folder, "prometheus-rules-test.yaml") }
func (f Files) dashboard() string { return filepath.Join(f.Folder, "grafana-dashboard.json") }

// CheckAlerts checks that Prometheus accepts the alerts, that they fire when they should, and that each describes the
// problem and the remedy.
func (f Files) CheckAlerts(t *testing.T) {
	t.Helper()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(monitoring, f.rules()))
	promtool(t, "test", "rules", filepath.Join(monitoring, f.ruleTests()))
	tests := read(t, f.ruleTests())
	all := f.alerts(t)
	if len(all) < 10 {
		t.Fatalf("got %d alerts, want at least 10", len(all))
	}
	for _, alert := range all {
		alert.check(t, tests)
	}
	f.checkRunbook(t, all)
}

// runbookURL is the runbook's address in alerts.
const runbookURL = "https://github.com/vicinity-proxy/vicinity/blob/main/manifests/monitoring/runbook.md#"

// checkRunbook checks that each alert links to a section of the runbook, and that the program's part of the runbook has
// no other sections.
func (f Files) checkRunbook(t *testing.T, all []alert) {
	t.Helper()
	_, part, found := strings.Cut(read(t, "runbook.md"), "\n## The "+f.Folder+"\n")
	if !found {
		t.Fatalf("the runbook has no section for the %s", f.Folder)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	sections := map[string]string{}
	for section := range strings.SplitSeq(part, "\n### ") {
		name, text, _ := strings.Cut(section, "\n")
		if strings.HasPrefix(name, "Vicinity") {
			sections[name] = text
		}
	}
	for _, alert := range all {
		text := sections[alert.Alert]
		if got, want := alert.Annotations["runbook_url"], runbookURL+strings.ToLower(alert.Alert); got != want {
			t.Errorf("%s: runbook_url = %q, want %q", alert.Alert, got, want)
		}
		for _, part := range []string{"- **Impact**", "\n- **Diagnosis**", "\n- **Mitigation**", "\n- **Resolved when** "} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: the runbook section lacks %q", alert.Alert, part)
			}
		}
	}
	for name := range sections {
		if !slices.ContainsFunc(all, func(a alert) bool { return a.Alert == name }) {
			t.Errorf("the runbook has a section for %s, which is not an alert", name)
		}
	}
}

type alert struct {
	// Record is the name that a recording rule records. It is empty for an alert.
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
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
	if err := yaml.UnmarshalStrict([]byte(read(t, f.rules())), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Record == "" {
				all = append(all, rule)
			}
		}
	}
	return all
}

// check checks an alert's annotations, severity and duration, and that a rule test expects it to fire.
func (a alert) check(t *testing.T, tests string) {
	t.Helper()
	if a.Annotations["summary"] == "" || len(a.Annotations["description"]) < 100 {
		t.Errorf("%s: no summary, or a description below 100 bytes: summary %q, description %q", a.Alert, a.Annotations["summary"],
			a.Annotations["description"])
	}
	if a.For == "" {
		t.Errorf("%s has no duration: one bad scrape would page", a.Alert)
	}
	severity := a.Labels["severity"]
	if severity != "critical" && severity != "warning" {
		t.Errorf("%s: severity = %q, want critical or warning", a.Alert, severity)
	}
	expectation := regexp.MustCompile(
		`alertname: ` + a.Alert + `\n +eval_time: \w+\n +exp_alerts:\n +- exp_labels: \{severity: ` + severity + `[,}]`)
	if !strings.Contains(tests, `"`+a.Alert+`", alertstate="firing", severity="`+severity+`"`) && !expectation.MatchString(tests) {
		t.Errorf("%s: no rule test expects it to fire as %s", a.Alert, severity)
	}
}
