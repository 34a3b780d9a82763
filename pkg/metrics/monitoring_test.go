package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// monitoring is the folder of the dashboard and the alerts.
var monitoring = filepath.Join("..", "..", "manifests", "monitoring")

func readMonitoring(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(monitoring, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// promtool runs Prometheus' own tool, which Go builds first if need be: some minutes on a machine that has never done it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	arguments := append([]string{"tool", "-modfile=" + filepath.Join("..", "..", ".lint", "go.mod"), "promtool"}, args...)
	if output, err := exec.CommandContext(t.Context(), "go", arguments...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

func TestPrometheusAcceptsTheAlertsAndTheyFireWhenTheyShould(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(monitoring, "prometheus-rules.yaml"))
	promtool(t, "test", "rules", filepath.Join(monitoring, "prometheus-rules-test.yaml"))
}

// alerts returns the alerts of the rule file by name, each with its text.
func alerts(t *testing.T) map[string]alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	if err := yaml.UnmarshalStrict([]byte(readMonitoring(t, "prometheus-rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]alert{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert] = rule
		}
	}
	return all
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func TestEachAlertSaysWhatHappenedAndWhatToDo(t *testing.T) {
	tests := readMonitoring(t, "prometheus-rules-test.yaml")
	all := alerts(t)
	if len(all) < 10 {
		t.Fatalf("there are only %d alerts", len(all))
	}
	for name, alert := range all {
		if alert.Annotations["summary"] == "" || len(alert.Annotations["description"]) < 100 {
			t.Errorf("%s: the summary is %q, the description %q", name, alert.Annotations["summary"], alert.Annotations["description"])
		}
		if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: severity %q", name, severity)
		}
		if alert.For == "" {
			t.Errorf("%s fires at once: one bad scrape wakes somebody", name)
		}
		if !strings.Contains(tests, `"`+name+`"`) && !strings.Contains(tests, "alertname: "+name+"\n") {
			t.Errorf("%s: no rule test makes it fire", name)
		}
	}
}

// dashboard is what is read of a Grafana dashboard.
type dashboard struct {
	Panels []struct {
		Type, Title, Description string
		Targets                  []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var board dashboard
	if err := json.Unmarshal([]byte(readMonitoring(t, "grafana-dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	return board
}

func TestEachPanelOfTheDashboardIsNamedExplainedAndUnderstoodByPrometheus(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	panels := 0
	for _, panel := range readDashboard(t).Panels {
		if panel.Type == "row" {
			continue
		}
		panels++
		if panel.Title == "" || panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("panel %q: description %q, %d targets", panel.Title, panel.Description, len(panel.Targets))
		}
		for _, target := range panel.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", "vicinity-proxy", "$instance", ".*").Replace(target.Expr)
			fmt.Fprintf(&rules, "  - record: panel:%d:%d\n    expr: %q\n", panels, rules.Len(), expr)
		}
	}
	if panels < 10 {
		t.Errorf("there are only %d panels", panels)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// TestTheDashboardAndTheAlertsNameOnlyMetricsThatExist, and no metric of ours is shown nowhere.
func TestTheDashboardAndTheAlertsNameOnlyMetricsThatExist(t *testing.T) {
	exist := registeredNames(t)
	families, err := NewRecorder().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		exist = append(exist, family.GetName()) // those of every Go program among them
	}
	named := map[string]bool{}
	for _, file := range []string{"grafana-dashboard.json", "prometheus-rules.yaml", "prometheus-rules-test.yaml"} {
		names := regexp.MustCompile(`\b(kubeproxy|vicinity|rest_client|process|go)_[a-z0-9_]+`)
		for _, name := range names.FindAllString(readMonitoring(t, file), -1) {
			family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if !slices.Contains(exist, name) && !slices.Contains(exist, family) {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
			named[name], named[family] = true, true
		}
	}
	for _, name := range documented(t) {
		if !named[name] {
			t.Errorf("%s is neither in the dashboard nor in an alert", name)
		}
	}
}
