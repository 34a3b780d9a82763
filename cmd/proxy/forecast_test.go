package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// shopFolder is a cluster whose Services demonstrate the purpose of a forecast.
const shopFolder = "../../e2e/forecast/shop"

func TestForecastPrintsEverySettingOfEachService(t *testing.T) {
	got := proxyCommand(t, "forecast", "--manifests", shopFolder, "--bound", "120%,140%")
	if got.status != 0 || got.stderr != "" {
		t.Fatalf("status %d, %s", got.status, got.stderr)
	}
	golden.File(t, "testdata/forecast.txt", got.stdout)
}

func TestForecastComparesBeforeAndAfter(t *testing.T) {
	got := proxyCommand(t, "forecast", "--manifests", shopFolder, "--evacuate", "zone-b", "--scale", "shop/cart=zone-c:4",
		"--annotate", "shop/images vicinity.dev/max-load=", "--annotate", "shop/web trafficDistribution=PreferSameZone",
		"--without-nodes", "kubernetes.io/hostname in (node-c3)")
	if got.status != 0 || got.stderr != "" {
		t.Fatalf("status %d, %s", got.status, got.stderr)
	}
	golden.File(t, "testdata/forecast-changed.txt", got.stdout)
}

// forecastOf returns the forecast of a folder.
func forecastOf(t *testing.T, folder string, args ...string) (report forecast.Report) {
	t.Helper()
	readForecast(t, &report, folder, args...)
	return report
}

// beforeAndAfter is the JSON output of forecast with hypothetical changes.
type beforeAndAfter struct{ Before, After forecast.Report }

// readForecast decodes the JSON output of forecast into a value of the type that the arguments determine.
func readForecast(t *testing.T, output any, folder string, args ...string) {
	t.Helper()
	got := proxyCommand(t, append([]string{"forecast", "--manifests", folder, "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(got.stdout), output); err != nil || got.status != 0 {
		t.Fatalf("%q: status %d, %v: %s", args, got.status, err, got.stderr)
	}
}

// TestForecastReportsClientsWithoutAlternatives: some clients have only evacuated endpoints, because of topology keys,
// a Local policy, or a lack of other endpoints.
func TestForecastReportsClientsWithoutAlternatives(t *testing.T) {
	const service = `
- {apiVersion: v1, kind: Service, metadata: {name: NAME, namespace: shop, annotations: {KEYS}}, spec: {clusterIP: 10.96.0.1,
    ports: [{port: 80}], SPEC}}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: NAME-1, namespace: shop, labels:
    {kubernetes.io/service-name: NAME}}, addressType: IPv4, ports: [{port: 80}], endpoints: [PODS]}`
	const onA, onB = "{addresses: [10.244.0.1], nodeName: a, zone: za}, ", "{addresses: [10.244.0.2], nodeName: b, zone: zb}, "
	const hard = "vicinity.dev/topology-keys: topology.kubernetes.io/zone"
	text := "apiVersion: v1\nkind: List\nitems:\n" +
		"- {apiVersion: v1, kind: Node, metadata: {name: a, labels: {topology.kubernetes.io/zone: za}}}\n" +
		"- {apiVersion: v1, kind: Node, metadata: {name: b, labels: {topology.kubernetes.io/zone: zb}}}\n"
	for name, words := range map[string][3]string{
		"free": {"", "type: ClusterIP", onA + onB}, "hard": {hard, "type: ClusterIP", onA + onB}, "alone": {"", "type: ClusterIP", onA},
		"outside":  {"", "type: LoadBalancer, externalTrafficPolicy: Local, externalIPs: [192.0.2.1]", onA + onB},
		"inside":   {"", "type: ClusterIP, internalTrafficPolicy: Local", onA + onB},
		"standing": {"", "type: LoadBalancer, externalTrafficPolicy: Local, externalIPs: [192.0.2.1]", onB},
		"none":     {hard, "type: ClusterIP", ""},
	} {
		text += strings.NewReplacer("NAME", name, "KEYS", words[0], "SPEC", words[1], "PODS", words[2]).Replace(service)
	}
	folder := writeManifests(t, text)
	var compared beforeAndAfter
	readForecast(t, &compared, folder, "--evacuate", "za")
	want := []forecast.OnlyEvacuated{
		{Service: "shop/alone", Share: 1, Clients: 2, ClientNodes: []string{"a", "b"}, ExternalNodes: []string{}},
		{Service: "shop/hard", Share: 0.5, Clients: 1, ClientNodes: []string{"a"}, ExternalNodes: []string{}},
		{Service: "shop/inside", Share: 0.5, Clients: 1, ClientNodes: []string{"a"}, ExternalNodes: []string{}},
		{Service: "shop/outside", ClientNodes: []string{}, ExternalNodes: []string{"a"}},
	}
	if diff := cmp.Diff(want, compared.After.OnlyEvacuated); diff != "" {
		t.Errorf("Services without other endpoints (-want +got):\n%s", diff)
	}
	if before := compared.Before; before.EvacuatedNodes != 0 || before.OnlyEvacuated == nil || len(before.OnlyEvacuated) != 0 {
		t.Errorf("before: %d Nodes, %v", before.EvacuatedNodes, before.OnlyEvacuated)
	}
	for args, want := range map[string]string{
		"--evacuate za": `
Evacuated: 1 Node. Some clients of 4 Services have no other endpoints. The endpoints there continue to serve them:

SERVICE       CONNECTIONS  CLIENT NODES  EXTERNAL TRAFFIC ON
shop/alone    100 %        a, b          -
shop/hard     50 %         a             -
shop/inside   50 %         a             -
shop/outside  0 %          -             a
`,
		"--evacuate za --top 1":          "\nshop/alone  100 %        a, b          -\nand 3 more; --top 0 prints all\n",
		"--evacuate za shop/free":        "\nEvacuated: 1 Node. shop/free does not depend on the endpoints there.\n",
		"--evacuate zb shop/outside":     "\nshop/outside  0 %          -             b\n",
		"--annotate shop/free_a.b/c=yes": "\nNothing is different for any Service.\n",
	} {
		if got := proxyCommand(t, splitSpacedArgs("forecast --manifests "+folder+" "+args)...); got.status != 0 ||
			!strings.Contains(got.stdout, want) {
			t.Errorf("%s: status %d, %s; want %q in\n%s", args, got.status, got.stderr, want, got.stdout)
		}
	}
}

// TestForecastEqualsSharesComputedByHand: the in-zone shares and the loads of the busiest endpoints equal those
// computed by hand.
func TestForecastEqualsSharesComputedByHand(t *testing.T) {
	type cell struct{ near, busiest float64 }
	want := map[string]map[string]cell{
		"shop/web":    {"none": {1. / 3, 1}, "PreferSameZone": {1, 1}, "Auto": {1, 1}, "120%": {1, 1}},
		"shop/api":    {"none": {1. / 3, 1}, "PreferSameZone": {1, 11. / 9}, "Auto": {1. / 3, 1}, "120%": {0.99394, 1.2}},
		"shop/search": {"none": {1. / 3, 1}, "PreferSameZone": {2. / 3, 4. / 3}, "120%": {2. / 3, 1}},
		"shop/cart":   {"none": {1. / 3, 1}, "PreferSameZone": {1, 8. / 3}, "Auto": {1. / 3, 1}, "120%": {0.63333, 1.2}},
	}
	got := map[string]map[string]cell{}
	for _, service := range forecastOf(t, shopFolder).Services {
		if want[service.Service] == nil {
			continue
		}
		got[service.Service] = map[string]cell{}
		for _, projection := range service.Projections {
			if _, isExpected := want[service.Service][projection.Setting]; isExpected {
				got[service.Service][projection.Setting] = cell{projection.Zone, projection.Busiest.Load}
			}
		}
	}
	isNear := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-4 && b-a < 1e-4 })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(cell{}), isNear); diff != "" {
		t.Errorf("shares and loads (-want +got):\n%s", diff)
	}
}

func TestForecastChecksLimitsInAPipeline(t *testing.T) {
	for name, test := range map[string]struct {
		args   string
		status int
		stderr string
	}{
		"no limits":       {"", 0, `^$`},
		"limits are kept": {"--max-load 3 --min-in-zone 0.3", 0, `^$`},
		"a load": {
			"--max-load 1.5", 1,
			`^proxy: shop/cart: the expected load of 10.244.0.17:8080 is 2.67 times the mean, and --max-load is 1.5\nproxy: shop/mail: .*\n$`,
		},
		"a load in percent": {
			"--max-load 150% shop/cart", 1, `^proxy: shop/cart: the expected load .* is 2.67 times the mean, and --max-load is 1.5\n$`,
		},
		"a share in percent": {
			"--min-in-zone 80% shop/api", 1, `^proxy: shop/api: 33 % of its connections stay in the zone, and --min-in-zone is 0.8\n$`,
		},
		"refused connections are not in the zone": {
			"--min-in-zone 0.7 shop/login", 1, `^proxy: shop/login: 67 % of its connections stay in the zone, and --min-in-zone is 0.7\n$`,
		},
		"refused connections": {
			"--max-refused 0", 1, `^proxy: shop/login: 33 % of its connections are refused, and --max-refused is 0 %\n$`,
		},
		"refused connections, in percent":         {"--max-refused 5%", 1, `^proxy: shop/login: 33 % .*, and --max-refused is 5.0 %\n$`},
		"refused connections, as a number":        {"--max-refused 0.05", 1, `^proxy: shop/login: 33 % .*, and --max-refused is 5.0 %\n$`},
		"the refused share is within the limit":   {"--max-refused 34%", 0, `^$`},
		"no connection is refused after a change": {"--max-refused 0 --scale shop/login=zone-c:1", 0, `^$`},
		"a load relative to that before": {"--max-load 1.4 shop/web --evacuate zone-b", 1,
			`^proxy: shop/web: the expected load of .* is 1.50 times the mean`},
		"a refused share of more than 100 %": {"--max-refused 101%", 2,
			`for "--max-refused" flag: must be from 0 to 1, or from 0% to 100%\n`},
		"a negative refused share":             {"--max-refused -1%", 2, `for "--max-refused" flag: must be from 0 to 1`},
		"a refused share that is not a number": {"--max-refused few", 2, `for "--max-refused" flag: must be a number or a percentage`},
		"an empty refused share":               {"--max-refused=", 2, `for "--max-refused" flag: must be a number or a percentage`},
		"a load without a percent sign": {"--max-load 120", 2,
			`for "--max-load" flag: it is a multiple of the mean; did you mean 120%\?`},
		"no zone to evacuate": {"--evacuate=", 2, `for "--evacuate" flag: the name of a zone, or a selector, is missing`},
		"a share": {
			"--min-in-zone 0.8 shop/api", 1, `^proxy: shop/api: 33 % of its connections stay in the zone, and --min-in-zone is 0.8\n$`,
		},
		"after a change":     {"--min-in-zone 0.8 shop/api --annotate shop/api_trafficDistribution=PreferSameZone", 0, `^$`},
		"an unknown Service": {"shop/wep", 2, `^proxy: service shop/wep not found; did you mean shop/web\?\n$`},
		"an unknown zone": {
			"--evacuate zone-x", 2, `^proxy: --evacuate zone-x: no Node is in that zone; the zones are zone-a, zone-b, zone-c\n$`,
		},
		"no such Nodes":               {"--without-nodes a=b", 2, `matches none of the 9 Nodes`},
		"all Nodes":                   {"--without-nodes kubernetes.io/hostname", 2, `matches all 9 Nodes`},
		"an unknown Service to scale": {"--scale shop/wep=zone-a:2", 2, `did you mean shop/web\?`},
		"an unknown zone to scale in": {"--scale shop/web=zone-x:2", 2, `no Node is in that zone; the zones are zone-a`},
		"no endpoints":                {"--scale ops/billing=zone-a:2", 2, `has no EndpointSlice`},
		"a missing folder":            {"--manifests missing", 2, `^proxy: load manifests: .*missing`},
		"a missing demand":            {"--demand missing", 2, `^proxy: --demand: open missing`},
		"a wrong bound":               {"--bound 99%", 2, `--bound: "99%" must be an integer from 100 to 1000`},
		"a wrong scale":               {"--scale shop/web=zone-a", 2, `is not NAMESPACE/NAME=ZONE:REPLICAS`},
		"a port to scale":             {"--scale shop/web:http=zone-a:2", 2, `names a port; endpoints are for the whole Service`},
		"no namespace":                {"--scale web=zone-a:2", 2, `the namespace is missing, as in default/web`},
		"no namespace to annotate":    {"--annotate web_a.b/c=yes", 2, `the namespace is missing, as in default/web`},
		"a wrong number":              {"--scale shop/web=zone-a:x", 2, `"x" is not a number of replicas`},
		"a wrong annotation":          {"--annotate shop/web", 2, `is not "NAMESPACE/NAME KEY=VALUE"`},
		"a value that a rule denies": {
			"--annotate shop/web_vicinity.dev/max-load=1.2", 2,
			`^proxy: --annotate shop/web: metadata.annotations\[vicinity.dev/max-load\]: Invalid value: "1.2": must be an integer .*; ` +
				`write a percentage of the mean load, such as "120%" \[SVC011\]; ` +
				`--annotate shop/web: .*: Forbidden: has nothing to bound; .* \[SVC012\]\n$`,
		},
		"an unknown key":              {"--annotate shop/web_vicinity.dev/max-lod=120%", 2, `did you mean .*max-load.* \[SVC009\]\n$`},
		"keys that contradict others": {"--annotate shop/web_vicinity.dev/topology-keys=*,a", 2, `\[SVC005\]\n$`},
		"what a rule warns of": {
			"--annotate shop/web_vicinity.dev/topology-keys=kubernetes.io/hostname", 0,
			`^warning: --annotate shop/web: .*no "\*": connections fail where no endpoint matches; .* \[SVC027\]\n$`,
		},
		"two changes that need each other": {
			"--annotate shop/web_vicinity.dev/max-load=150% --annotate shop/web_service.kubernetes.io/topology-mode=vicinity.dev/balanced", 0, `^$`,
		},
		"an unknown distribution": {
			"--annotate shop/web_trafficDistribution=PreferSamZone", 2,
			`is not a value of spec.trafficDistribution; did you mean PreferSameZone\?\n`,
		},
		"a wrong selector":     {"--without-nodes a==(", 2, `for "--without-nodes" flag: `},
		"a port":               {"shop/web:http", 2, `a forecast is for whole Services`},
		"two sources":          {"--context here", 2, `--manifests excludes --kubeconfig and --context`},
		"a comparison as HTML": {"-o html --evacuate zone-a", 2, `-o html shows one state`},
		"an impossible share":  {"--min-in-zone 80", 2, `for "--min-in-zone" flag: must be from 0 to 1, or from 0% to 100%; did you mean 80%\?`},
		"a share that is NaN":  {"--min-in-zone nan", 2, `for "--min-in-zone" flag: must be a number or a percentage`},
		"a load that is NaN":   {"--max-load nan", 2, `for "--max-load" flag: must be a number or a percentage`},
		"an infinite load":     {"--max-load inf", 2, `for "--max-load" flag: must be a number or a percentage`},
		"a negative load":      {"--max-load -1", 2, `for "--max-load" flag: must be more than 0`},
		"a load of 0":          {"--max-load 0", 2, `for "--max-load" flag: must be more than 0`},
		"nothing to check":     {"--max-load 2 ops/billing", 2, `there is no Service whose connections could be forecast`},
		"nothing to forecast":  {"ops/billing", 0, `^$`},
	} {
		got := proxyCommand(t, splitSpacedArgs("forecast --manifests "+shopFolder+" --top 1 "+test.args)...)
		if got.status != test.status || !regexp.MustCompile(test.stderr).MatchString(got.stderr) {
			t.Errorf("%s: status %d, want %d; stderr %q, want %s", name, got.status, test.status, got.stderr, test.stderr)
		}
	}
}

func TestForecastWarnsOfUnreadableObjects(t *testing.T) {
	folder := writeManifests(t, `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: node-1}
- apiVersion: v1
  kind: Node
  metadata: {name: node-1}
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: web}
  spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: bad}
  spec: {clusterIP: nonsense, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: worse}
  spec: {clusterIPP: 10.96.0.1}
`)
	got := proxyCommand(t, "forecast", "--manifests", folder)
	for _, want := range []string{
		"the same object is already in state.yaml", "Service shop/bad: spec.clusterIP", "Service shop/worse: spec.clusterIPP: unknown field",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, got.stderr)
		}
	}
	if got.status != 2 || !strings.Contains(got.stdout, "shop/web") || !strings.Contains(got.stdout, "shop/bad: it is invalid") {
		t.Errorf("status %d:\n%s", got.status, got.stdout)
	}
	got = proxyCommand(t, "forecast", "--manifests", t.TempDir())
	if got.status != 2 || !strings.Contains(got.stderr, "there is no Service and no Node") {
		t.Errorf("an empty folder: status %d, %s", got.status, got.stderr)
	}
}

func TestExplainWhySuggestsChanges(t *testing.T) {
	var all strings.Builder
	for _, line := range []string{
		"node-c1 shop/login node-a1", "node-a1 shop/cart 10.244.0.17", "node-a1 shop/mail 10.244.0.45:8080", "node-a1 shop/mail 10.244.0.46",
		"node-a1 shop/images node-b1", "node-a1 ops/metrics node-b2", "node-a1 ops/logs 10.244.0.67", "node-a1 shop/db:http node-b1",
	} {
		args := splitArgs(line)
		got := proxyCommand(t, "explain", "--manifests", shopFolder, "--node", args[0], args[1], "--why", args[2])
		if got.status != 0 || got.stderr != "" {
			t.Fatalf("%s: status %d, %s", line, got.status, got.stderr)
		}
		all.WriteString("$ proxy explain --node " + args[0] + " " + args[1] + " --why " + args[2] + "\n" + got.stdout + "\n")
	}
	golden.File(t, "testdata/why.txt", all.String())

	var explanations []forecast.EndpointExplanation
	got := proxyCommand(t, "explain", "--manifests", shopFolder, "--node", "node-c1", "shop/login", "--why", "node-a1", "-o", "json")
	if err := json.Unmarshal([]byte(got.stdout), &explanations); err != nil || len(explanations) != 1 ||
		len(explanations[0].Suggestions) != 2 {
		t.Errorf("%v: %s", err, got.stdout)
	}
	for _, test := range []struct {
		args   string
		status int
		want   string
	}{
		{"--node node-a1 --why node-b1", 2, "--why needs a Service"},
		{"--all-nodes shop/web --why node-b1", 2, "--why is about one node; it excludes --all-nodes"},
		{"--node node-x shop/web --why node-b1", 1, `there is no Node "node-x"`},
		{"--node node-a1 shop/wep --why node-b1", 1, "did you mean shop/web?"},
		{"--node node-a1 shop/web:x --why node-b1", 1, "service shop/web has no port x"},
		{"--node node-a1 shop/web --why web-1", 1, "web-1 is not an endpoint of shop/web, a pod of one, or a node with one"},
		{"--node node-a1 shop/web --why 10.9.9.9", 1, "it has 10.244.0.2:8080 on node-a1"},
		{"--node node-a1 ops/billing --why node-b1", 1, "it is of type ExternalName"},
	} {
		got := proxyCommand(t, append([]string{"explain", "--manifests", shopFolder}, splitArgs(test.args)...)...)
		if got.status != test.status || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s: status %d, %s; want %d, %s", test.args, got.status, got.stderr, test.status, test.want)
		}
	}
}

func TestExplainWhyFindsPodsByName(t *testing.T) {
	folder := writeManifests(t, `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: node-1, labels: {topology.kubernetes.io/zone: a}}
- apiVersion: v1
  kind: Node
  metadata: {name: node-2, labels: {topology.kubernetes.io/zone: b}}
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: web, annotations: {vicinity.dev/topology-keys: "topology.kubernetes.io/zone, *"}}
  spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: http, port: 8080}]
  endpoints:
  - {addresses: [10.244.1.1], nodeName: node-1, zone: a, targetRef: {kind: Pod, namespace: shop, name: web-a}}
  - {addresses: [10.244.2.1], nodeName: node-2, zone: b, targetRef: {kind: Pod, namespace: shop, name: web-b}}
`)
	got := proxyCommand(t, "explain", "--manifests", folder, "--node", "node-1", "shop/web", "--why", "web-b")
	for _, want := range []string{
		"connections of node-1 to 10.244.2.1:8080 (pod web-b on node-2)", "[OtherTopologyValue]",
		"remove the annotation vicinity.dev/topology-keys (50 %)", "make the endpoint that is used unready: 10.244.1.1:8080 (100 %)",
	} {
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("status %d, lacks %q:\n%s%s", got.status, want, got.stdout, got.stderr)
		}
	}
}
