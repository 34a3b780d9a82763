package v1alpha1

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestDocumentsStateFreshFor: manifests and documents state DemandFreshFor, and an alert fires after half of it.
func TestDocumentsStateFreshFor(t *testing.T) {
	words := map[time.Duration]string{30 * time.Minute: "half an hour", time.Hour: "an hour", 2 * time.Hour: "two hours"}
	if words[DemandFreshFor] != DemandFreshForText {
		t.Fatalf("DemandFreshFor is %s, in words %q, but DemandFreshForText is %q", DemandFreshFor, words[DemandFreshFor], DemandFreshForText)
	}
	half, seconds := words[DemandFreshFor/2], fmt.Sprintf("%.0f", (DemandFreshFor/2).Seconds())
	for file, sentences := range map[string][]string{
		"manifests/webhook/README.md": {
			"not renewed for " + DemandFreshForText + ", the objects expire",
			"`VicinityDemandStale` of the proxies fires " + half + " before that",
		},
		"manifests/monitoring/runbook.md": {
			"none yet. " + strings.ToUpper(DemandFreshForText[:1]) + DemandFreshForText[1:] + " after the last confirmation",
		},
		"manifests/monitoring/proxy/prometheus-rules.yaml": {
			`time() - max(vicinity_demand_last_renewed_timestamp_seconds{job="vicinity-proxy"}) > ` + seconds + " for:",
			"After " + DemandFreshForText + " it expires",
		},
		"manifests/monitoring/proxy/prometheusrule.yaml": {
			`time() - max(vicinity_demand_last_renewed_timestamp_seconds{job="vicinity-proxy"}) > ` + seconds + " for:",
			"After " + DemandFreshForText + " it expires",
		},
		"manifests/monitoring/proxy/grafana-dashboard.json":  {"After " + DemandFreshForText + " it expires"},
		"manifests/monitoring/webhook/prometheus-rules.yaml": {"assumed demand after " + DemandFreshForText + "."},
		"manifests/monitoring/webhook/prometheusrule.yaml":   {"assumed demand after " + DemandFreshForText + "."},
		"pkg/proxy/report/metrics/README.md":                 {"Measured demand expires after " + DemandFreshForText},
	} {
		text, err := os.ReadFile("../../../../" + file)
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
