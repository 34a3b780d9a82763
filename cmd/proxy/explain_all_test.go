package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// TestExplainCountsWhatIsSkipped: text for users omits endpoints unless --all is set; machine-readable output never
// does.
func TestExplainCountsWhatIsSkipped(t *testing.T) {
	for args, want := range map[string]int{"": 2, "--all": 7, "-o json": 7} {
		got := proxyCommand(t, splitArgs("explain --manifests "+shopFolder+" --node node-c1 shop/cart "+args)...)
		listed := strings.Count(got.stdout, "✗ ") + strings.Count(got.stdout, `"message": "The endpoint'`)
		if got.status != 0 || listed != want || strings.Contains(got.stdout, "--all lists") != (args == "") {
			t.Errorf("%q: status %d, %d lines, want %d:\n%s%s", args, got.status, listed, want, got.stdout, got.stderr)
		}
	}
}

// withWindows is a cluster with a Windows node; the node without the label counts as Linux. The Service web has an
// endpoint on the Windows node, and the Service hard keeps connections on the node.
const withWindows = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: linux, labels: {kubernetes.io/os: linux, topology.kubernetes.io/zone: a}}}
- {apiVersion: v1, kind: Node, metadata: {name: unlabelled, labels: {topology.kubernetes.io/zone: a}}}
- {apiVersion: v1, kind: Node, metadata: {name: win2, labels: {kubernetes.io/os: windows, topology.kubernetes.io/zone: b}}}
- apiVersion: v1
  kind: Service
  metadata:
    name: web
    namespace: shop
    annotations: {vicinity.dev/topology-keys: "topology.kubernetes.io/zone, *", vicinity.dev/max-load: 120%}
  spec: {clusterIP: 10.96.0.80, ports: [{port: 80, protocol: TCP}]}
- apiVersion: v1
  kind: Service
  metadata: {name: hard, namespace: shop, annotations: {vicinity.dev/topology-keys: kubernetes.io/hostname}}
  spec: {clusterIP: 10.96.0.81, ports: [{port: 80, protocol: TCP}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{port: 8080, protocol: TCP}]
  endpoints:
  - {addresses: [10.244.1.5], nodeName: linux, zone: a, conditions: {ready: true}}
  - {addresses: [10.244.2.5], nodeName: win2, zone: b, conditions: {ready: true}}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: hard-1, namespace: shop, labels: {kubernetes.io/service-name: hard}}
  addressType: IPv4
  ports: [{port: 8080, protocol: TCP}]
  endpoints: [{addresses: [10.244.1.6], nodeName: linux, zone: a, conditions: {ready: true}}]
`

// TestNonLinuxNodesAreNotClients: this proxy does not run on them, but their endpoints are used. All demand comes from
// the two Linux nodes in one zone, and is split over the endpoints of both zones.
func TestNonLinuxNodesAreNotClients(t *testing.T) {
	folder := writeManifests(t, withWindows)
	got := proxyCommand(t, splitArgs("explain --all-nodes shop/web --manifests "+folder)...)
	if got.status != 0 || strings.Contains(got.stdout, "on win2") || !strings.Contains(got.stdout, " on linux, unlabelled\n") ||
		!strings.Contains(got.stdout, "60 % of this node's connections stay in its") ||
		!strings.Contains(got.stdout, "for 2 of 2 of the demand") ||
		!strings.Contains(got.stderr, "do not run Linux (label kubernetes.io/os) and this proxy does not run there: 1 Node (win2)") {
		t.Errorf("explain --all-nodes: status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	got = proxyCommand(t, splitArgs("explain --all-nodes -o json shop/web --manifests "+folder)...)
	var ports []explain.PortReport
	if err := json.Unmarshal([]byte(got.stdout), &ports); err != nil || len(ports) != 1 || ports[0].Node != "linux" ||
		!slices.Equal(ports[0].Alike.Nodes, []string{"unlabelled"}) {
		t.Errorf("explain --all-nodes -o json: %v\n%s%s", err, got.stdout, got.stderr)
	}
	for _, command := range []string{"explain --node win2 shop/web", "explain --node win2 shop/web --why linux", "render --node win2"} {
		got := proxyCommand(t, append(splitArgs(command), "--manifests", folder)...)
		if got.status != 0 || !strings.Contains(got.stderr, "node win2 does not run Linux (kubernetes.io/os=windows)") {
			t.Errorf("%s: status %d\n%s%s", command, got.status, got.stdout, got.stderr)
		}
	}
	got = proxyCommand(t, splitArgs("forecast shop/hard --manifests "+folder)...)
	for _, want := range []string{
		"50 % of its connections are refused: those from 1 of 2 Nodes (unlabelled).",
		"Clients on Nodes that do not run Linux (label kubernetes.io/os) use another proxy, and are not counted here: 1 of 3 Nodes (win2).",
	} {
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("forecast: status %d, want %q\n%s%s", got.status, want, got.stdout, got.stderr)
		}
	}
}
