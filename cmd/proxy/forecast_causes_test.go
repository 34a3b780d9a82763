package main

import (
	"math"
	"strings"
	"testing"
)

// threeZones is a cluster of three Nodes in three zones, and one Service with an endpoint on each.
const threeZones = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: na, labels: {kubernetes.io/hostname: na, topology.kubernetes.io/zone: za}}}
- {apiVersion: v1, kind: Node, metadata: {name: nb, labels: {kubernetes.io/hostname: nb, topology.kubernetes.io/zone: zb}}}
- {apiVersion: v1, kind: Node, metadata: {name: nc, labels: {kubernetes.io/hostname: nc, topology.kubernetes.io/zone: zc}}}
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: web, annotations: {}}
  spec: {clusterIP: 10.96.0.10, selector: {app: web}, ports: [{port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata:
    namespace: shop
    name: web-1
    labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}
  addressType: IPv4
  ports: [{name: "", port: 80, protocol: TCP}]
  endpoints:
  - {addresses: [10.244.0.1], conditions: {ready: true}, nodeName: na, zone: za}
  - {addresses: [10.244.1.1], conditions: {ready: true}, nodeName: nb, zone: zb}
  - {addresses: [10.244.2.1], conditions: {ready: true}, nodeName: nc, zone: zc}
`

// threeZonesWith writes threeZones with some parts replaced, each of which must exist, and returns the folder. pairs
// are old and new texts in turn.
func threeZonesWith(t *testing.T, pairs ...string) string {
	t.Helper()
	text := threeZones
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("there is no %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return writeManifests(t, text)
}

const (
	noAnnotations = "annotations: {}"
	noSetting     = "ports: [{port: 80}]}"
	sameZone      = "ports: [{port: 80}], trafficDistribution: PreferSameZone}"
	onNodeA       = "nodeName: na, zone: za"
	onNodeC       = "nodeName: nc, zone: zc"
	noZone        = "The ready endpoint 10.244.0.1:80 has no zone in its EndpointSlice, because na had no label topology.kubernetes.io/zone " +
		"when that was written"
	zoneIsKept = "EndpointSlices keep the zone that a Node had when they were written, until the Service or its pods change."
)

// TestForecastReportsTheCauseBeforeAnyAdvice checks that forecast prints causes first, and does not recommend settings
// that are already set.
func TestForecastReportsTheCauseBeforeAnyAdvice(t *testing.T) {
	const noHints = "shop/web: spec.trafficDistribution: PreferSameZone is set, and has no effect, because no EndpointSlice of the Service " +
		"has hints. "
	for name, test := range map[string]struct {
		replace []string
		want    []string // in this order
		lacks   string   // text that the output must not have
	}{
		"nothing is set": {
			nil,
			[]string{"shop/web: PreferSameZone keeps 100 % in the zone instead of 33 %", "  spec:\n      trafficDistribution: PreferSameZone\n"},
			"see below",
		},
		"it is set, and no slice has hints": {
			[]string{noSetting, sameZone},
			[]string{" see below\n", noHints + "kube-controller-manager writes them within seconds"},
			"PreferSameZone keeps",
		},
		"it is set, and no controller writes hints": {
			[]string{noSetting, sameZone, "managed-by: endpointslice-controller.k8s.io", "managed-by: me"},
			[]string{noHints + "The writer of these EndpointSlices sets no hints"}, "PreferSameZone keeps",
		},
		"it is set, and the slices were written before the Nodes had zones": {
			[]string{noSetting, sameZone, ", zone: za", "", ", zone: zb", "", ", zone: zc", ""},
			[]string{noHints + "kube-controller-manager writes none. " + noZone + ". It has the label now. " + zoneIsKept}, "PreferSameZone keeps",
		},
		"it is set, and no Node has a zone": {
			[]string{
				noSetting, sameZone, ", zone: za", "", ", zone: zb", "", ", zone: zc", "", ", topology.kubernetes.io/zone: za", "",
				", topology.kubernetes.io/zone: zb", "", ", topology.kubernetes.io/zone: zc", "",
			},
			[]string{noHints + "kube-controller-manager writes none. " + noZone + ", and has none now. " + zoneIsKept}, "It has the label",
		},
		"one endpoint has no zone in its slice": {
			[]string{noSetting, sameZone, ", zone: za}\n", "}\n",
				"nodeName: nb, zone: zb", "nodeName: nb, zone: zb, hints: {forZones: [{name: zb}]}"},
			[]string{"kube-controller-manager writes none. " + noZone + ". It has the label now. " + zoneIsKept}, "within seconds",
		},
		"Auto, and the slices were written before the Nodes had zones": {
			[]string{
				noAnnotations, "annotations: {service.kubernetes.io/topology-mode: Auto}", ", zone: za", "", ", zone: zb", "", ", zone: zc", "",
			},
			[]string{"kube-controller-manager writes none: ", noZone + ". It has the label now. " + zoneIsKept}, "within seconds",
		},
		"hints for nodes need no zone": {
			[]string{noSetting, "ports: [{port: 80}], trafficDistribution: PreferSameNode}", ", zone: za", "", ", zone: zb", "", ", zone: zc", ""},
			[]string{"PreferSameNode is set, and has no effect", "kube-controller-manager writes them within seconds"}, noZone,
		},
		"one endpoint has no hint": {
			[]string{noSetting, sameZone, onNodeA, onNodeA + ", hints: {forZones: [{name: za}]}", onNodeC,
				onNodeC + ", hints: {forZones: [{name: zc}]}"},
			[]string{"because the ready endpoint 10.244.1.1:80 has no hint. kube-controller-manager writes them within seconds"},
			"PreferSameZone keeps",
		},
		"it is set, and a bound would be needed, too": {
			[]string{noSetting, sameZone, onNodeC, onNodeA},
			[]string{noHints, "shop/web: A load bound of 120% keeps 67 % in the zone", `vicinity.dev/max-load: "120%"`}, "    spec:",
		},
		"Auto, for which there are too few endpoints": {
			[]string{noAnnotations, "annotations: {service.kubernetes.io/topology-mode: Auto}"},
			[]string{
				"service.kubernetes.io/topology-mode: Auto is set, and has no effect, because no EndpointSlice of the Service has hints. " +
					"kube-controller-manager writes none: Insufficient Node information",
				"shop/web: PreferSameZone keeps 100 %", "        service.kubernetes.io/topology-mode: null\n    spec:\n",
			}, "should have written",
		},
		"keys that are ignored, with their rule": {
			[]string{noAnnotations, "annotations: {vicinity.dev/topology-keys: 'zone, zone, *'}"},
			[]string{" see below\n", `Duplicate value: "zone": is the same key as entry 1; list each key once [SVC004]`}, "keeps",
		},
		"keys that are ignored, where the webhook does not check": {
			[]string{noAnnotations, "labels: {vicinity.dev/admission: disabled}, annotations: {vicinity.dev/topology-keys: 'zone, zone, *'}"},
			[]string{"The annotation vicinity.dev/topology-keys is ignored: entry 2 \"zone\" is the same key as entry 1"}, "keeps",
		},
		"a mode that is misspelt, with its rule": {
			[]string{noAnnotations, "annotations: {service.kubernetes.io/topology-mode: 'auto '}"},
			[]string{`did you mean "Auto"? Other spellings are treated as Disabled [SVC008]`}, "keeps",
		},
		"another proxy's annotation, which has no effect": {
			[]string{noAnnotations, "annotations: {openyurt.io/topologyKeys: kubernetes.io/hostname}"},
			[]string{"is not read; use vicinity.dev/topology-keys [SVC033]", "shop/web: PreferSameZone keeps"}, "see below",
		},
		"a bound that the Service already has": {
			[]string{
				noAnnotations, "annotations: {vicinity.dev/max-load: 200%, vicinity.dev/topology-keys: 'topology.kubernetes.io/zone, *'}",
				"zone: zb}}}", `zone: zb, vicinity.dev/demand-weight: "4"}}}`,
			},
			[]string{" 100 % 2.00  ", " 73 % 1.20  -\n"}, "a bound of",
		},
		"all endpoints have hints": {
			[]string{
				noSetting, sameZone, onNodeA, onNodeA + ", hints: {forZones: [{name: za}]}", onNodeC, onNodeC + ", hints: {forZones: [{name: zc}]}",
				"nodeName: nb, zone: zb", "nodeName: nb, zone: zb, hints: {forZones: [{name: zb}]}",
			},
			[]string{"No other setting keeps more"}, "see below",
		},
	} {
		got := proxyCommand(t, "forecast", "--manifests", threeZonesWith(t, test.replace...))
		expectInOrder(t, name, got.stdout, test.want)
		if got.status != 0 || strings.Contains(got.stdout, test.lacks) {
			t.Errorf("%s: status %d, or the output has %q:\n%s%s", name, got.status, test.lacks, got.stdout, got.stderr)
		}
	}
}

// TestExplainReportsASettingWithoutHints checks that explain prints the same sentence as forecast.
func TestExplainReportsASettingWithoutHints(t *testing.T) {
	const sentence = "spec.trafficDistribution: PreferSameZone is set, and has no effect, because no EndpointSlice of the Service has hints."
	for text, want := range map[string]bool{noSetting: false, sameZone: true} {
		got := proxyCommand(t, "explain", "--node", "na", "--manifests", threeZonesWith(t, noSetting, text))
		if has := strings.Contains(strings.Join(strings.Fields(got.stdout), " "), sentence); got.status != 0 || has != want {
			t.Errorf("%s: reported %v, want %v: status %d\n%s%s", text, has, want, got.status, got.stdout, got.stderr)
		}
	}
	const sameNode = "ports: [{port: 80}], trafficDistribution: PreferSameNode}"
	for text, want := range map[string]bool{sameZone: true, sameNode: false} {
		state := threeZonesWith(t, noSetting, text, ", zone: za", "", ", zone: zb", "", ", zone: zc", "")
		got := proxyCommand(t, "explain", "--node", "nb", "--manifests", state)
		isReported := strings.Contains(strings.Join(strings.Fields(got.stdout), " "), noZone+". It has the label now. "+zoneIsKept)
		if got.status != 0 || isReported != want {
			t.Errorf("%s, without zones in slices: reported %v, want %v: status %d\n%s%s", text, isReported, want, got.status, got.stdout,
				got.stderr)
		}
	}
}

// TestForecastReportsWhyConnectionsAreRefused checks that it also prints which Nodes and ports are affected.
func TestForecastReportsWhyConnectionsAreRefused(t *testing.T) {
	const hardKeys = "annotations: {vicinity.dev/topology-keys: topology.kubernetes.io/zone}"
	for name, test := range map[string]struct {
		replace    []string
		cell, want string
	}{
		"keys without *": {
			[]string{noAnnotations, hardKeys, onNodeA, onNodeC, "nodeName: nb, zone: zb", onNodeC},
			"33 % 1.00, 67 % refused",
			"shop/web: 67 % of its connections are refused: those from 2 of 3 Nodes (na, nb). On na: No usable endpoint matches a topology " +
				"key: none shares this node's topology.kubernetes.io/zone, \"za\", and the keys do not end with *.\n" +
				"shop/web: metadata.annotations[vicinity.dev/topology-keys]: no \"*\": connections fail where no endpoint matches; " +
				"append \", *\" to fall back to any endpoint [SVC027]\n",
		},
		"a label that no Node has": {
			[]string{noAnnotations, "annotations: {vicinity.dev/topology-keys: example.com/rack}"}, "  refused  ",
			"shop/web: All of its connections are refused: those from 3 of 3 Nodes (na, nb, nc). On na: No endpoint matches a topology key: " +
				"this node has no label example.com/rack, and",
		},
		"internalTrafficPolicy: Local": {
			[]string{noSetting, "ports: [{port: 80}], internalTrafficPolicy: Local}", onNodeC, onNodeA}, "67 % 1.50, 33 % refused",
			"shop/web: 33 % of its connections are refused: those from 1 of 3 Nodes (nc). On nc: internalTrafficPolicy is Local, and " +
				"no usable endpoint is on this node.",
		},
		"no endpoint": {
			[]string{"service-name: web", "service-name: wep"}, "  refused  ",
			"shop/web: All of its connections are refused: The Service port has no endpoints.",
		},
		"none is ready": {
			[]string{"ready: true", "ready: false"}, "  refused  ",
			"shop/web: All of its connections are refused: No endpoint is ready, and none still serves while terminating.",
		},
		"one of two ports": {
			[]string{noSetting, "ports: [{port: 80, name: a}, {port: 81, name: b}]}", `name: ""`, "name: a"}, "17 % 1.00, 50 % refused",
			"shop/web: All of its connections to 81/TCP are refused: The Service port has no endpoints.",
		},
		"one of two families": {
			[]string{"clusterIP: 10.96.0.10,", `clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00::1"],`}, "17 % 1.00, 50 % refused",
			"shop/web: All of its connections to 80/TCP over IPv6 are refused: The Service port has no endpoints.",
		},
	} {
		got := proxyCommand(t, "forecast", "--manifests", threeZonesWith(t, test.replace...))
		if got.status != 0 || !strings.Contains(got.stdout, test.want) || !strings.Contains(got.stdout, test.cell) {
			t.Errorf("%s: status %d, want %q and %q:\n%s%s", name, got.status, test.cell, test.want, got.stdout, got.stderr)
		}
	}
}

// TestForecastLoadsAreRelativeToTheOriginalMean checks that loads after the changes are multiples of the mean before
// them, and that the clients that a Service names after the changes are the clients in both forecasts.
func TestForecastLoadsAreRelativeToTheOriginalMean(t *testing.T) {
	caller := `
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: caller}
  spec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {namespace: shop, name: caller-1, labels: {kubernetes.io/service-name: caller}}
  addressType: IPv4
  ports: [{port: 80}]
  endpoints:
  - {addresses: [10.244.0.2], nodeName: na}
  - {addresses: [10.244.0.3], nodeName: na}
  - {addresses: [10.244.0.4], nodeName: na}
  - {addresses: [10.244.1.2], nodeName: nb}
`
	folder := threeZonesWith(t, lastEndpoint, lastEndpoint+strings.TrimPrefix(caller, "\n"))
	const keys, load, clients = "--annotate shop/web_vicinity.dev/topology-keys=topology.kubernetes.io/zone,*",
		" --annotate shop/web_vicinity.dev/max-load=150%", " --annotate shop/web_vicinity.dev/clients=shop/caller"
	for args, want := range map[string]struct{ before, after float64 }{
		"--evacuate zc":                             {1, 1.5},
		"--evacuate zc --evacuate zb":               {1, 3},
		"--scale shop/web=za:4":                     {1, 0.5},
		"--without-nodes kubernetes.io/hostname=nc": {1, 1}, // a third of the endpoints and of the clients
		keys:                                     {1, 1},
		keys + clients + load:                    {1, 1.5},  // three of four clients are in za
		keys + clients + load + " --evacuate zc": {1, 2.25}, // the bound is 1.5 times the mean after the change
	} {
		var compared beforeAndAfter
		readForecast(t, &compared, folder, splitSpacedArgs("shop/web "+args)...)
		before, after := compared.Before.Services[0].Projections[0].Busiest.Load, compared.After.Services[0].Projections[0].Busiest.Load
		if math.Abs(before-want.before) > 1e-6 || math.Abs(after-want.after) > 1e-6 {
			t.Errorf("%s: the expected load of the busiest endpoint is %v times the mean before, and %v after, want %v", args, before, after, want)
		}
	}
}

const lastEndpoint = "  - {addresses: [10.244.2.1], conditions: {ready: true}, nodeName: nc, zone: zc}\n"

// TestAShareIsUnknownIfNoNodeHasTheLabel: it is printed as "-", with an explanation. Without known zones there is no
// in-zone share.
func TestAShareIsUnknownIfNoNodeHasTheLabel(t *testing.T) {
	const label = ", topology.kubernetes.io/zone: "
	zones := []string{label + "za", "", label + "zb", "", label + "zc", ""}
	inSlices := []string{", zone: za", "", ", zone: zb", "", ", zone: zc", ""}
	for name, test := range map[string]struct {
		replace []string
		status  int // exit status with --min-in-zone
		want    []string
	}{
		"no region": {nil, 1, []string{
			"now             33 %         33 %         -              67 %         0 %",
			"No Node has the label topology.kubernetes.io/region, so it is unknown what stays in a region.\n", "33 % 1.00 ",
		}},
		"no zone": {append(zones, inSlices...), 2, []string{
			"now             33 %         -            -              -            0 %",
			"No Node has the label topology.kubernetes.io/zone, so it is unknown what stays in a zone.\n",
		}},
		"one Node without a zone": {[]string{", topology.kubernetes.io/zone: zc", ""}, 1, []string{
			"In no zone, because the label topology.kubernetes.io/zone is missing: 1 of 3 Nodes (nc).\n",
			"22 % of the connections come from, or go to, an unknown zone.\n",
		}},
		"an empty zone is none": {[]string{", topology.kubernetes.io/zone: zc", `, topology.kubernetes.io/zone: ""`}, 1, []string{
			"In no zone, because the label topology.kubernetes.io/zone is missing: 1 of 3 Nodes (nc).\n",
		}},
		"endpoints without nodes": {
			[]string{", " + onNodeA, "", ", nodeName: nb, zone: zb", "", ", " + onNodeC, ""}, 0,
			[]string{"now             0 %          -            -              -            0 %", "shop/web  3          - 1.00 "},
		},
	} {
		folder := threeZonesWith(t, test.replace...)
		got := proxyCommand(t, "forecast", "--manifests", folder)
		for _, want := range test.want {
			if got.status != 0 || !strings.Contains(got.stdout, want) {
				t.Errorf("%s: status %d, want %q:\n%s%s", name, got.status, want, got.stdout, got.stderr)
			}
		}
		if got := proxyCommand(t, "forecast", "--manifests", folder, "--min-in-zone", "50%"); got.status != test.status {
			t.Errorf("%s: --min-in-zone 50%%: status %d, want %d: %s", name, got.status, test.status, got.stderr)
		}
	}
}
