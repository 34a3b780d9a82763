package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
)

// writeQuery writes the result of an instant query to a file. Each line has a node, or zone=NAME, a Service or "-", and
// a value.
func writeQuery(t *testing.T, lines ...string) string {
	t.Helper()
	type sample struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
	}
	samples := []sample{}
	for _, line := range lines {
		fields := strings.Fields(line)
		entry := sample{map[string]string{"instance": fields[0]}, [2]any{1764268800, fields[2]}}
		if zone, ok := strings.CutPrefix(fields[0], "zone="); ok {
			entry.Metric = map[string]string{"zone": zone}
		}
		if namespace, name, ok := strings.Cut(fields[1], "/"); ok {
			entry.Metric["namespace"], entry.Metric["service"] = namespace, name
		}
		samples = append(samples, entry)
	}
	text, err := json.Marshal(samples)
	mustSucceed(t, err)
	file := filepath.Join(t.TempDir(), "query.json")
	mustSucceed(t, os.WriteFile(file, text, 0o600))
	return file
}

// TestASelectionIsPricedByItsOwnBytes: bytes without a Service count only in a forecast of all Services, and the
// namespace ops has no bytes.
func TestASelectionIsPricedByItsOwnBytes(t *testing.T) {
	state := threeZonesWith(t, "- apiVersion: v1\n  kind: Service\n", `- apiVersion: v1
  kind: Service
  metadata: {namespace: ops, name: mail}
  spec: {clusterIP: 10.96.0.11, ports: [{port: 25}]}
- apiVersion: v1
  kind: Service
`)
	file := writeQuery(t, "na shop/web 3000000", "nb - 1000000", "nc - 0")
	for selection, want := range map[string][]string{
		"":         {"To other zones per month, of 10.37 TB in total, at 10 per GB:\n"},
		"shop/web": {"To other zones per month, of 7.78 TB in total, at 10 per GB:\n", " now   5.18 TB   51840.00\n"},
		"-n ops":   {"To other zones per month: nothing, because no bytes of Services of the namespace ops were measured.\n"},
	} {
		got := proxyCommand(t, splitArgs("forecast --manifests "+state+" --demand "+file+" --price 10/GB "+selection)...)
		if expectInOrder(t, selection, got.stdout, want); got.status != 0 {
			t.Errorf("%q: status %d, %s", selection, got.status, got.stderr)
		}
	}
}

// TestPartialDemandFailsLimits: forecast reports how much of the demand is missing, and does not check limits.
func TestPartialDemandFailsLimits(t *testing.T) {
	state := threeZonesWith(t)
	for name, test := range map[string]struct {
		lines  []string
		args   string
		output string // empty: nothing is missing
	}{
		"complete":                 {[]string{"na shop/web 1", "nb shop/web 1", "nc - 0"}, "", ""},
		"one Node":                 {[]string{"na - 1"}, "", "query.json lacks 2 of 3 Nodes (nb, nc): the forecast does not include "},
		"a Node that is gone":      {[]string{"na - 1", "nb - 1", "nc - 1", "nd - 1"}, "", "25 % of the demand in "},
		"a Service that is gone":   {[]string{"na shop/web 1", "nb shop/old 3", "nc - 1"}, "", "75 % of the demand on Services in "},
		"another selection":        {[]string{"na shop/web 1", "nb ops/old 3", "nc - 1"}, "-n shop", ""},
		"a part of this selection": {[]string{"na shop/web 1", "nb shop/old 3", "nc - 1"}, "-n shop", "75 % of the demand on these Services in "},
		"before and after":         {[]string{"na - 1"}, "--evacuate za", "query.json lacks 2 of 3 Nodes"},
	} {
		file := writeQuery(t, test.lines...)
		args := append([]string{"forecast", "--manifests", state, "--demand", file}, splitArgs(test.args)...)
		if got := proxyCommand(t, args...); got.status != 0 || test.output != "" && !strings.Contains(got.stdout, test.output) ||
			test.output == "" && (strings.Contains(got.stdout, "lacks") || strings.Contains(got.stdout, "omitted")) {
			t.Errorf("%s: the output lacks %q: %+v", name, test.output, got)
		}
		var output struct { // After exists only in a comparison
			forecast.Report
			After forecast.Report
		}
		readForecast(t, &output, state, args[3:]...)
		if missing := append(output.Incomplete, output.After.Incomplete...); (len(missing) > 0) != (test.output != "") {
			t.Errorf("%s: the reported missing parts are %q", name, missing)
		}
		for _, limit := range []string{"--max-load 10", "--min-in-zone 0", "--max-refused 1"} {
			status, message := 0, ""
			if test.output != "" {
				status, message = 2, "proxy: limits cannot be checked with part of the demand: "
			}
			if got := proxyCommand(t, append(args, splitArgs(limit)...)...); got.status != status || !strings.Contains(got.stderr, message) {
				t.Errorf("%s: %s: status %d, %s; want %d", name, limit, got.status, got.stderr, status)
			}
		}
	}
}

// TestViolatedBoundIsExplainedWithAFix: two thirds of the connections come from zone za, and no proxy knows that.
func TestViolatedBoundIsExplainedWithAFix(t *testing.T) {
	const keys = `vicinity.dev/topology-keys: "topology.kubernetes.io/zone, *"`
	file := writeQuery(t, "na shop/web 4", "nb shop/web 1", "nc shop/web 1")
	for name, test := range map[string]struct {
		annotations string
		want        []string // in this order
		lacks       string
	}{
		"a bound": {
			keys + `, vicinity.dev/max-load: 120%`,
			[]string{
				" measured\n", "shop/web: The expected load of 10.244.0.1:80 is 2.00 times the mean, more than the load bound of 120% allows: " +
					"the bound is planned with one client per Node, or the weight in its label vicinity.dev/demand-weight, and this is a " +
					"forecast with the demand in the file of --demand.",
				"shop/web: With its load bound planned with measured demand, the expected load of the busiest endpoint is 1.20 times the mean " +
					"instead of 2.00",
				`vicinity.dev/demand-source: "measured"`,
			}, "No other setting",
		},
		"no bound": {
			keys, []string{" 120% measured\n", "with a load bound of 120%, planned with measured demand, the highest expected load is 1.20 times",
				`vicinity.dev/max-load: "120%"`, `vicinity.dev/demand-source: "measured"`}, "with a load bound of 120% the highest",
		},
		"a bound that the topology keys prevent": {
			`vicinity.dev/topology-keys: topology.kubernetes.io/zone, vicinity.dev/max-load: 120%`,
			[]string{" see below\n", "more than the load bound of 120% allows: its topology keys allow some clients no other endpoints."},
			"With its load bound planned",
		},
		"a bound with the setting measured": {
			keys + `, vicinity.dev/max-load: 120%, vicinity.dev/demand-source: measured`,
			[]string{string(v1alpha1.NoUsableDemand), "more than the load bound of 120% allows"}, "With its load bound planned",
		},
	} {
		got := proxyCommand(t, "forecast", "--manifests", threeZonesWith(t, noAnnotations, "annotations: {"+test.annotations+"}"), "--demand",
			file)
		expectInOrder(t, name, got.stdout, test.want)
		if got.status != 0 || strings.Contains(got.stdout, test.lacks) {
			t.Errorf("%s: status %d, or the output has %q:\n%s%s", name, got.status, test.lacks, got.stdout, got.stderr)
		}
	}
	headless := threeZonesWith(t, noAnnotations, "annotations: {"+keys+", vicinity.dev/max-load: 120%}", "clusterIP: 10.96.0.10",
		"clusterIP: None")
	service := forecastOf(t, headless, "--demand", file).Services[0]
	index := slices.IndexFunc(service.Projections, func(projection forecast.Projection) bool { return projection.Setting == "120% measured" })
	if index < 0 || service.Advice != nil || !strings.HasPrefix(service.Projections[index].Note,
		"connections to a headless Service are not counted") {
		t.Errorf("a headless Service has advice, or no note about measured demand: %+v", service)
	}
}

func TestAPriceNeedsBytes(t *testing.T) {
	state, zeroDemand := threeZonesWith(t), writeQuery(t, "na shop/web 0", "nb shop/web 0")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"without demand": {[]string{"--price", "0.01/GB"}, "--price needs --demand"},
		"without a unit": {[]string{"--price", "0.01", "--demand", zeroDemand}, `"0.01" is not a price of a gigabyte`},
		"negative":       {[]string{"--price", "-1/GB", "--demand", zeroDemand}, `"-1/GB" is not a price of a gigabyte`},
		"without bytes":  {[]string{"--price", "0.01/GB", "--demand", zeroDemand}, "all weights are 0"},
		"a folder":       {[]string{"--demand", t.TempDir()}, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			got := proxyCommand(t, append([]string{"forecast", "--manifests", state}, test.args...)...)
			if got.status != 2 || !strings.Contains(got.stderr, test.want) {
				t.Errorf("got %+v, want status 2 and %q", got, test.want)
			}
		})
	}
}
