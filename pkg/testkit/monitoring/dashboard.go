package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dashboard has the parts of a Grafana dashboard that are checked.
type dashboard struct {
	Panels []panel
}

type panel struct {
	Type, Title, Description string
	Targets                  []struct{ Expr string }
}

func (f Files) readDashboard(t testing.TB) (board dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, f.dashboard())), &board); err != nil {
		t.Fatal(err)
	}
	return board
}

// CheckDashboard checks that each panel of the dashboard has a title, a description and queries that Prometheus
// accepts.
func (f Files) CheckDashboard(t *testing.T) {
	t.Helper()
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	panels := 0
	for _, panel := range f.readDashboard(t).Panels {
		if panel.Type == "row" {
			continue
		}
		panels++
		if panel.Title == "" || panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("a panel lacks a title, a description or targets: title %q, description %q, %d targets", panel.Title, panel.Description,
				len(panel.Targets))
		}
		for _, target := range panel.Targets {
			fmt.Fprintf(&rules, "  - record: panel:%d:%d\n    expr: %q\n", panels, rules.Len(), f.substituteVariables(target.Expr))
		}
	}
	if panels < 10 {
		t.Errorf("got %d panels, want at least 10", panels)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// substituteVariables returns a panel's query with values for the dashboard's variables.
func (f Files) substituteVariables(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$job", f.Job, "$instance", ".*", "$price", "0.02").Replace(expr)
}

// Queries returns the queries of the dashboard's panels, by panel title.
func (f Files) Queries(t testing.TB) map[string][]string {
	t.Helper()
	queries := map[string][]string{}
	for _, panel := range f.readDashboard(t).Panels {
		for _, target := range panel.Targets {
			queries[panel.Title] = append(queries[panel.Title], f.substituteVariables(target.Expr))
		}
	}
	return queries
}

// Rules returns the path of the file with recording rules and alerts.
func (f Files) Rules(t testing.TB) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(monitoring, f.rules()))
	if err != nil {
		t.Fatal(err)
	}
	return file
}
