package servicedemand

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestDocumentsStateFreshFor: manifests and documents state FreshFor, and an alert fires after half of it.
func TestDocumentsStateFreshFor(t *testing.T) {
	words := map[time.Duration]string{30 * time.Minute: "half an hour", time.Hour: "an hour", 2 * time.Hour: "two hours"}
	if words[FreshFor] != FreshForText {
		t.Fatalf("FreshFor is %s, in words %q, but FreshForText is %q", FreshFor, words[FreshFor], FreshForText)
	}
	half, seconds := words[FreshFor/2], fmt.Sprintf("%.0f", (FreshFor/2).Seconds())
	for file, sentences := range map[string][]string{
		"manifests/webhook/README.md": {
			"not renewed for " + FreshForText + ", the objects expire",
			"`VicinityDemandStale` of the proxies fires " + half + " before that",
		},
		"manifests/monitoring/runbook.md": {
			"none yet. " + strings.ToUpper(FreshForText[:1]) + FreshForText[1:] + " after the last confirmation",
		},
		"manifests/monitoring/proxy/prometheus-rules.yaml": {
			`time() - max(vicinity_demand_last_renewed_timestamp_seconds{job="vicinity-proxy"}) > ` + seconds + " for:",
			"After " + FreshForText + " it expires",
		},
		"manifests/monitoring/proxy/prometheusrule.yaml": {
			`time() - max(vicinity_demand_last_renewed_timestamp_seconds{job="vicinity-proxy"}) > ` + seconds + " for:",
			"After " + FreshForText + " it expires",
		},
		"manifests/monitoring/proxy/grafana-dashboard.json":  {"After " + FreshForText + " it expires"},
		"manifests/monitoring/webhook/prometheus-rules.yaml": {"assumed demand after " + FreshForText + "."},
		"manifests/monitoring/webhook/prometheusrule.yaml":   {"assumed demand after " + FreshForText + "."},
		"pkg/proxy/report/metrics/README.md":                 {"Measured demand expires after " + FreshForText},
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, sentence := range sentences {
			if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), sentence) {
				t.Errorf("%s does not contain %q", file, sentence)
			}
		}
	}
}
