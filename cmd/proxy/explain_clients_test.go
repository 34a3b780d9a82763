package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// TestExplainReportsWherePodsCountAsOutside: explain has the flags of run, and reports where pods are not recognized.
func TestExplainReportsWherePodsCountAsOutside(t *testing.T) {
	const (
		recognized = ""
		noCIDR4    = "there is no IPv4 --cluster-cidr"
		noCIDR6    = "there is no IPv6 --cluster-cidr"
		noPods4    = "the Node has no IPv4 podCIDR"
		noPods6    = "the Node has no IPv6 podCIDR"
	)
	local := strings.Replace(dualStackManifests, "type: NodePort", "type: NodePort\n    externalTrafficPolicy: Local", 1)
	folder, withoutNodes := writeManifests(t, local), writeManifests(t, strings.ReplaceAll(local, "kind: Node\n", "kind: Unknown\n"))
	tests := map[string]struct {
		args string
		want map[string]string // node and family: why pods count as outside
	}{
		"no pod is recognized by default": {"--node node-a", map[string]string{"node-a IPv4": noCIDR4, "node-a IPv6": noCIDR6}},
		"a cluster CIDR of one family": {
			"--node node-a --cluster-cidr 10.244.0.0/16", map[string]string{"node-a IPv4": recognized, "node-a IPv6": noCIDR6},
		},
		"the podCIDRs of each node": {"--all-nodes --detect-local-mode NodeCIDR", map[string]string{
			"node-a IPv4": recognized, "node-a IPv6": noPods6, "node-b IPv4": noPods4, "node-b IPv6": noPods6,
		}},
		"a node without a Node object": {
			"--node node-c --detect-local-mode NodeCIDR --manifests " + withoutNodes,
			map[string]string{"node-c IPv4": noPods4, "node-c IPv6": noPods6},
		},
		"a bridge serves both families": {
			"--node node-b --detect-local-mode BridgeInterface --pod-bridge-interface cni0",
			map[string]string{"node-b IPv4": recognized, "node-b IPv6": recognized},
		},
		"a link prefix serves both families": {
			"--node node-b --detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix veth",
			map[string]string{"node-b IPv4": recognized, "node-b IPv6": recognized},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, port := range explainPorts(t, append([]string{"--manifests", folder}, splitArgs(test.args)...)...) {
				for _, traffic := range port.Traffic {
					if traffic.From == "outside" {
						got[port.Node+" "+port.Family] = whyPodsAreOutside(traffic.Message)
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("reasons why pods count as outside (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExplainSupportsMasqueradeAll(t *testing.T) {
	folder := writeManifests(t, dualStackManifests)
	for args, want := range map[string]string{"--node node-a": "", "--node node-a --masquerade-all": "masqueraded"} {
		for _, port := range explainPorts(t, append(splitArgs(args), "--manifests", folder)...) {
			if got := port.Traffic[0]; got.To != "ClusterIP" || got.Source != want {
				t.Errorf("%s: traffic to %s comes from %q, want ClusterIP and %q", args, got.To, got.Source, want)
			}
		}
	}
}

// dualStackManifests is nodePortManifests with ClusterIPs of both families and an endpoint of each on node-a.
var dualStackManifests = strings.Replace(nodePortManifests, "clusterIPs: [10.96.0.10]", `clusterIPs: [10.96.0.10, "fd00:10:96::10"]
    ipFamilies: [IPv4, IPv6]`, 1) + `- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-4, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: [10.244.1.5], nodeName: node-a, conditions: {ready: true}}]
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-6, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv6
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: ["fd00:10:244::5"], nodeName: node-a, conditions: {ready: true}}]
`

// explainPorts returns the output of explain with some arguments.
func explainPorts(t *testing.T, args ...string) []explain.PortReport {
	t.Helper()
	got := proxyCommand(t, append(splitArgs("explain -o json"), args...)...)
	var ports []explain.PortReport
	if err := json.Unmarshal([]byte(got.stdout), &ports); err != nil || len(ports) == 0 {
		t.Fatalf("exit status %d, %d ports (%v); stderr:\n%s", got.status, len(ports), err, got.stderr)
	}
	return ports
}

// whyPodsAreOutside extracts from a message about traffic from outside why pods are included; empty if they are not.
func whyPodsAreOutside(message string) string {
	_, reason, _ := strings.Cut(message, "(which includes pods, because ")
	reason, _, _ = strings.Cut(reason, ")")
	return reason
}
