package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
)

// boundedManifests returns a cluster with two zones of one node each, and a Service with a bound, two endpoints in zone
// a and six in zone b. annotations are added to the Service, and more are further objects.
func boundedManifests(annotations string, more ...string) string {
	var endpoints []string
	for i := range 8 {
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [10.244.1.%d], nodeName: node-%s}", i+1, []string{"a", "b"}[min(i/2, 1)]))
	}
	return `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-a}}, ` +
		`status: {conditions: [{type: Ready, status: "True"}]}}
- {apiVersion: v1, kind: Node, metadata: {name: node-b, labels: {topology.kubernetes.io/zone: zone-b}}}
- apiVersion: v1
  kind: Service
  metadata:
    namespace: shop
    name: web
    annotations: {vicinity.dev/topology-keys: "topology.kubernetes.io/zone, *", vicinity.dev/max-load: 120%` + annotations + `}
  spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{port: 8080}]
  endpoints: [` + strings.Join(endpoints, ", ") + "]\n" + strings.Join(more, "")
}

const (
	measuredSetting = `, vicinity.dev/demand-source: measured`
	demandOfWeb     = `- apiVersion: vicinity.dev/v1alpha1
  kind: ServiceDemand
  metadata: {namespace: shop, name: web}
  zones: [{zone: zone-a, demandPPM: 800000}, {zone: zone-b, demandPPM: 200000}]
  nodesReporting: 2
  nodesTotal: 2
  connectionsPerMinute: 7000
  observedAt: 2026-11-27T08:00:00Z
`
)

// TestForecastUsesServiceDemands: forecast and explain plan with the ServiceDemand; without one, forecast states that
// there is no measured demand.
func TestForecastUsesServiceDemands(t *testing.T) {
	for name, test := range map[string]struct {
		more       string
		isMeasured bool
	}{
		"with a ServiceDemand":                        {demandOfWeb, true},
		"without a ServiceDemand":                     {"", false},
		"with a ServiceDemand of zones without Nodes": {strings.ReplaceAll(demandOfWeb, "zone-", "site-"), false},
	} {
		state := writeManifests(t, boundedManifests(measuredSetting, test.more))
		report := forecastOf(t, state)
		if len(report.Services) != 1 {
			t.Fatalf("%s: %+v", name, report)
		}
		want, busiest := "labels", 1.2
		if test.isMeasured {
			want = "measured"
		}
		service := &report.Services[0]
		if now := service.Projections[0]; service.DemandSource != want || now.PlannedWith != want || math.Abs(now.Busiest.Load-busiest) > 0.01 {
			t.Errorf("%s: demand from %q, planned with %q: %+v", name, service.DemandSource, now.PlannedWith, now)
		}
		if notes := strings.Join(report.Notes, "\n"); strings.Contains(notes, string(v1alpha1.NoUsableDemand)) == test.isMeasured {
			t.Errorf("%s: the notes are %q", name, notes)
		}
		if strings.Contains(report.Demand, "(shop/web), measured since 2026-11-27 08:00 UTC; for others each") != test.isMeasured {
			t.Errorf("%s: the demand is described as %s", name, report.Demand)
		}
		if page := proxyCommand(t, "forecast", "--manifests", state).stdout; strings.Contains(page, "is from ServiceDemands") != test.isMeasured {
			t.Errorf("%s: the heading does not describe the demand: %s", name, page)
		}
		ports := explainPorts(t, "--manifests", state, "--node", "node-a", "shop/web")
		if ports[0].Load.DemandSource != want {
			t.Errorf("%s: explain has another demand source: %+v", name, ports)
		}
		why := proxyCommand(t, "explain", "--manifests", state, "--node", "node-a", "shop/web", "--why", "10.244.1.1", "-o", "json")
		share := 0.0
		for _, step := range ports[0].Cluster.Shares {
			if step.Key != "*" {
				share = step.Share / 2
			}
		}
		var explanations []forecast.EndpointExplanation
		if err := json.Unmarshal([]byte(why.stdout), &explanations); err != nil || math.Abs(explanations[0].Share-share) > 0.001 {
			t.Errorf("%s: --why has %+v, and explain %+v", name, explanations, ports[0].Cluster.Shares)
		}
	}
}

// TestMissingMeasuredDemandIsExplained: the reason and the remedy come before "Nothing is different".
func TestMissingMeasuredDemandIsExplained(t *testing.T) {
	other := strings.Replace(demandOfWeb, "name: web", "name: other", 1)
	for name, test := range map[string]struct {
		state string
		args  []string
		want  []string
	}{
		"no ServiceDemand": {boundedManifests(""), nil, []string{string(v1alpha1.NoUsableDemand),
			"The load bound of shop/web is planned with assumed demand",
			"kubectl get servicedemands -A",
			"component demand", "'forecast --demand FILE' compares"}},
		"only a ServiceDemand of another Service": {boundedManifests("", other), nil, []string{string(v1alpha1.NoUsableDemand),
			"'forecast --demand FILE' compares"}},
		"a ServiceDemand of zones without Nodes": {boundedManifests("", strings.NewReplacer("zone-a, demandPPM", "zone-x, demandPPM",
			"zone-b, demandPPM", "zone-y, demandPPM").
			Replace(demandOfWeb)), nil, []string{string(v1alpha1.NoUsableDemand)}},
		"assumed demand is requested": {boundedManifests("", demandOfWeb), []string{"--demand-source", "assumed"}, nil},
	} {
		args := []string{"forecast", "--manifests", writeManifests(t, test.state), "--annotate", "shop/web vicinity.dev/demand-source=measured"}
		got := proxyCommand(t, append(args, test.args...)...)
		before, _, found := strings.Cut(got.stdout, "Nothing is different for any Service.")
		if got.status != 0 || !found {
			t.Errorf("%s: %+v", name, got)
		}
		for _, want := range test.want {
			if !strings.Contains(before, want) {
				t.Errorf("%s: the output lacks %q before the result:\n%s", name, want, got.stdout)
			}
		}
		if len(test.want) == 0 && strings.Contains(before, "ServiceDemand") {
			t.Errorf("%s: the output mentions ServiceDemands, which have no effect:\n%s", name, got.stdout)
		}
	}
}

// TestEachNumberNamesItsDemand: a file takes precedence over ServiceDemands as the demand of Nodes, but no proxy plans
// with it.
func TestEachNumberNamesItsDemand(t *testing.T) {
	state, file := writeManifests(t, boundedManifests(measuredSetting, demandOfWeb)), writeQuery(t, "zone=zone-a - 1", "zone=zone-b - 9")
	for name, test := range map[string]struct {
		args   []string
		want   map[string]string
		source string
		output string
	}{
		"ServiceDemands": {nil, map[string]string{"now": "measured", "120%": "labels", "120% measured": "measured"}, "measured",
			"Demand is from ServiceDemands for 1 of 1 Service (shop/web)"},
		"a file": {[]string{"--demand", file}, map[string]string{"now": "measured", "120%": "labels", "120% measured": "measured"}, "file",
			"Demand is from " + file + ". ServiceDemands do not affect it"},
		"neither": {[]string{"--demand-source", "assumed"}, map[string]string{"now": "labels", "120%": "labels"}, "labels",
			"Each Node counts as one client"},
	} {
		report := forecastOf(t, state, test.args...)
		planned := map[string]string{}
		for _, projection := range report.Services[0].Projections {
			if projection.PlannedWith != "" {
				planned[projection.Setting] = projection.PlannedWith
			}
		}
		if fmt.Sprint(planned) != fmt.Sprint(test.want) || report.Services[0].DemandSource != test.source ||
			!strings.HasPrefix(report.Demand, test.output) {
			t.Errorf("%s: planned with %v, demand from %q: %s", name, planned, report.Services[0].DemandSource, report.Demand)
		}
	}
}

// TestMeasuredDemandIsRecommended: measured demand is recommended for a load bound that is planned without it, in
// addition to the clients that the Service names. A new load bound is planned with it from the start.
func TestMeasuredDemandIsRecommended(t *testing.T) {
	const (
		adviceForBound = "shop/web: With its load bound planned with measured demand, the expected load of the busiest endpoint is 1.20 " +
			"times the mean instead of 1.92, and 50 % stay in the zone instead of 68 %."
		adviceForNewBound = "with a load bound of 120%, planned with measured demand, the highest expected load is 1.20 times"
		noAdvice          = "No other setting keeps more connections in their zone"
	)
	unbounded := strings.Replace(boundedManifests("", demandOfWeb), ", vicinity.dev/max-load: 120%", "", 1)
	for name, test := range map[string]struct {
		state, output string
		set           []string
	}{
		"a bound": {boundedManifests("", demandOfWeb), adviceForBound, []string{`vicinity.dev/demand-source: "measured"`}},
		"a bound with named clients": {boundedManifests(`, vicinity.dev/clients: "shop/nothing,"`, demandOfWeb), adviceForBound,
			[]string{`vicinity.dev/demand-source: "measured"`}},
		"a bound with clients without endpoints": {boundedManifests(", vicinity.dev/clients: shop/nothing", demandOfWeb), adviceForBound,
			[]string{`vicinity.dev/demand-source: "measured"`}},
		"a bound that is already planned with measured demand": {boundedManifests(measuredSetting, demandOfWeb), noAdvice, nil},
		"a bound without measured demand":                      {boundedManifests(""), noAdvice, nil},
		"no bound": {unbounded, adviceForNewBound,
			[]string{`vicinity.dev/demand-source: "measured"`, `vicinity.dev/max-load: "120%"`}},
		"no bound, and nothing is measured": {
			strings.Replace(unbounded, demandOfWeb, "", 1), "with a load bound of 120% the highest expected load is",
			[]string{`vicinity.dev/max-load: "120%"`},
		},
	} {
		got := proxyCommand(t, "forecast", "--manifests", writeManifests(t, test.state))
		if got.status != 0 || !strings.Contains(got.stdout, test.output) {
			t.Errorf("%s: the output lacks %q: %+v", name, test.output, got)
		}
		_, advice, _ := strings.Cut(got.stdout, "annotations:")
		for line := range strings.SplitSeq(strings.TrimSpace(advice), "\n") {
			if line := strings.TrimSpace(line); line != "" && !slices.Contains(test.set, line) {
				t.Errorf("%s: the advice has the unexpected line %s", name, line)
			}
		}
		for _, line := range test.set {
			if !strings.Contains(advice, line) {
				t.Errorf("%s: the advice lacks the line %s", name, line)
			}
		}
	}
}
