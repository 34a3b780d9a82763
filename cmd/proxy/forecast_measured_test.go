//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/forecast"
)

// writeMetrics writes what the proxy of a node reported after a number of seconds.
func writeMetrics(t *testing.T, folder, node string, seconds, connections, bytes int) {
	t.Helper()
	file := filepath.Join(folder, node+".prom")
	began := time.Now().Add(-time.Hour)
	text := fmt.Sprintf(`# TYPE process_start_time_seconds gauge
process_start_time_seconds %d
# TYPE vicinity_connections_total counter
vicinity_connections_total{locality="same_zone",tier="*"} %d
# TYPE vicinity_service_traffic_bytes_total counter
vicinity_service_traffic_bytes_total{namespace="shop",service="web",locality="same_zone",tier="*",direction="sent"} %d
vicinity_service_traffic_bytes_total{namespace="",service="",locality="same_zone",tier="*",direction="received"} 0
`, began.Unix(), connections, bytes)
	succeed(t, os.WriteFile(file, []byte(text), 0o600))
	ended := time.Unix(began.Unix()+int64(seconds), 0)
	succeed(t, os.Chtimes(file, ended, ended))
}

// pricedState is zonedState with a second endpoint, in the zone of node-a.
var pricedState = strings.NewReplacer(
	"ANNOTATION", "*", "spec: {type", "spec: {selector: {app: web}, type",
	"service-name: web}", "service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}",
	"endpoints: [", "endpoints: [{addresses: [10.244.1.5], nodeName: node-a, zone: zone-a, conditions: {ready: true}}, ",
).Replace(zonedState)

func TestForecastSaysWhatOtherZonesWouldCost(t *testing.T) {
	folder, state := t.TempDir(), writeState(t, pricedState)
	writeMetrics(t, folder, "node-a", 100, 1000, 100_000)
	writeMetrics(t, folder, "node-b", 50, 0, 0)
	got := proxyCommand(t, "forecast", "--manifests", state, "--demand", folder, "--price", "0.01/GB", "-o", "json")
	var report forecast.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.status != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	// 1,000 B/s for 30 days, all of node-a: half of them to the other zone now, and none with PreferSameZone.
	if want := 1000.0 * 30 * 24 * 3600; math.Abs(report.BytesInMonth-want) > 1 {
		t.Errorf("%v bytes in a month, want %v", report.BytesInMonth, want)
	}
	for _, cost := range report.Costs {
		if want := map[string]float64{"now": 0.5, "PreferSameZone": 0}; cost.Setting == "now" || cost.Setting == "PreferSameZone" {
			crossing := want[cost.Setting] * report.BytesInMonth
			if math.Abs(cost.Bytes-crossing) > 1 || math.Abs(cost.Money-crossing/1e9*0.01) > 1e-9 {
				t.Errorf("%+v, want %v bytes", cost, crossing)
			}
		}
	}
	text := proxyCommand(t, "forecast", "--manifests", state, "--demand", folder, "--price", "0.01/GB").stdout
	if !strings.Contains(text, "To other zones in a month, of 2.59 GB in all, at 0.01 for each GB:") {
		t.Errorf("the text is\n%s", text)
	}
}

func TestAPriceNeedsBytes(t *testing.T) {
	state, empty := writeState(t, pricedState), t.TempDir()
	weights, foreign := filepath.Join(t.TempDir(), "weights.yaml"), t.TempDir()
	succeed(t, os.WriteFile(weights, []byte("node-a: 1\n"), 0o600))
	succeed(t, os.WriteFile(filepath.Join(foreign, "node-a.prom"), []byte("# TYPE x counter\nx 1\n"), 0o600))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"without demand":             {[]string{"--price", "0.01/GB"}, "--price needs --demand"},
		"of no unit":                 {[]string{"--price", "0.01", "--demand", weights}, `"0.01" is not a price of a gigabyte`},
		"below nothing":              {[]string{"--price", "-1/GB", "--demand", weights}, `"-1/GB" is not a price of a gigabyte`},
		"with weights alone":         {[]string{"--price", "0.01/GB", "--demand", weights}, "a price needs bytes"},
		"a folder without metrics":   {[]string{"--demand", empty}, "there is no NODE.prom in the folder"},
		"metrics of another program": {[]string{"--demand", foreign}, "node-a.prom: it lacks vicinity_connections_total"},
	} {
		t.Run(name, func(t *testing.T) {
			got := proxyCommand(t, append([]string{"forecast", "--manifests", state}, test.args...)...)
			if got.status != 2 || !strings.Contains(got.stderr, test.want) {
				t.Errorf("%+v, want %q", got, test.want)
			}
		})
	}
}
