package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dashboard is what is read of a Grafana dashboard.
type dashboard struct {
	Panels []struct {
		Type, Title, Description string
		Targets                  []struct{ Expr string }
	}
}

// CheckDashboard checks that each panel of the dashboard is named, explained and understood by Prometheus.
func (f Files) CheckDashboard(t *testing.T) {
	t.Helper()
	var board dashboard
	if err := json.Unmarshal([]byte(read(t, f.dashboard())), &board); err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	panels := 0
	for _, panel := range board.Panels {
		if panel.Type == "row" {
			continue
		}
		panels++
		if panel.Title == "" || panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("panel %q: description %q, %d targets", panel.Title, panel.Description, len(panel.Targets))
		}
		for _, target := range panel.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", f.Job, "$instance", ".*", "$price", "0.02").Replace(target.Expr)
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
