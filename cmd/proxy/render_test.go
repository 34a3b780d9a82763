package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nodePortManifests has a Service with a node port and no endpoint, and two Nodes; only node-a has an address and a
// podCIDR.
const nodePortManifests = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: shop}
  spec:
    type: NodePort
    clusterIP: 10.96.0.10
    clusterIPs: [10.96.0.10]
    ports:
    - {name: http, port: 80, protocol: TCP, nodePort: 30080}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
- apiVersion: v1
  kind: Node
  metadata: {name: node-a}
  spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24]}
  status: {addresses: [{type: InternalIP, address: 172.18.0.2}]}
- apiVersion: v1
  kind: Node
  metadata: {name: node-b}
`

func writeManifests(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "state.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestRenderWarnsOfUnintendedSettings(t *testing.T) {
	const (
		open   = "warning: --nodeport-addresses has no IPv6 CIDR, so node ports are served on all IPv6 addresses of this node\n"
		noPort = "warning: node ports are not served: --nodeport-addresses is primary, and the Node has no address\n"
		noPods = "warning: pods are not recognized: --detect-local-mode is NodeCIDR, and the Node has no podCIDR\n"
	)
	withoutNodePort := strings.Replace(nodePortManifests, ", nodePort: 30080", "", 1)
	tests := map[string]struct {
		state, args string
		want        string
	}{
		"the Node has an address":                            {nodePortManifests, "--node node-a", ""},
		"the Node has no address":                            {nodePortManifests, "--node node-b", noPort},
		"the Node has no address, and needs none":            {nodePortManifests, "--node node-b --nodeport-addresses 0.0.0.0/0,::/0", ""},
		"CIDRs of one family":                                {nodePortManifests, "--node node-a --nodeport-addresses 172.18.0.0/16", open},
		"no Service has a node port, so there is no warning": {withoutNodePort, "--node node-b", ""},
		"the Node has a podCIDR":                             {nodePortManifests, "--node node-a --detect-local-mode NodeCIDR", ""},
		"the Node has no podCIDR":                            {withoutNodePort, "--node node-b --detect-local-mode NodeCIDR", noPods},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := proxyCommand(t, append(splitArgs("render --manifests "+writeManifests(t, test.state)), splitArgs(test.args)...)...)
			if got.status != 0 || got.stderr != test.want {
				t.Errorf("exit status %d, stderr %q; want 0 and %q", got.status, got.stderr, test.want)
			}
		})
	}
}

func TestRenderTakesTheNodesAddressesFromItsObject(t *testing.T) {
	folder := writeManifests(t, nodePortManifests)
	for node, want := range map[string]bool{"node-a": true, "node-b": false} {
		got := proxyCommand(t, splitArgs("render --manifests "+folder+" --node "+node)...)
		if got.status != 0 || strings.Contains(got.stdout, "172.18.0.2") != want {
			t.Errorf("%s: exit status %d, or node ports are wrongly served or not served on 172.18.0.2, want served %v:\n%s", node, got.status,
				want, got.stdout)
		}
	}
}

func TestExplainShowsNodePortsWithoutTheNodesAddresses(t *testing.T) {
	got := proxyCommand(t, splitArgs("explain --node node-a --manifests "+writeManifests(t, nodePortManifests))...)
	if got.status != 0 || !strings.Contains(got.stdout, "  external   *:30080  NodePort\n") {
		t.Errorf("exit status %d; the node port is missing:\n%s", got.status, got.stdout)
	}
}
