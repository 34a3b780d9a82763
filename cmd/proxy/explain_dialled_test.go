package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dialledState is a Service with node ports of TCP and UDP, and one that keeps connections from outside on the node where
// they arrive. The endpoints are on another one.
const dialledState = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: shop}
  spec:
    type: NodePort
    externalTrafficPolicy: Cluster
    clusterIP: 10.96.0.80
    clusterIPs: [10.96.0.80, "fd00:96::80"]
    ipFamilies: [IPv4, IPv6]
    ports:
    - {name: http, port: 80, protocol: TCP, nodePort: 30080}
    - {name: dns, port: 53, protocol: UDP, nodePort: 30080}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-4, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: [10.244.1.5], nodeName: node-b, conditions: {ready: true}}]
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-6, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv6
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: ["fd00:244::5"], nodeName: node-b, conditions: {ready: true}}]
- apiVersion: v1
  kind: Service
  metadata: {name: near, namespace: shop}
  spec:
    type: NodePort
    externalTrafficPolicy: Local
    clusterIP: 10.96.0.81
    clusterIPs: [10.96.0.81, "fd00:96::81"]
    ipFamilies: [IPv4, IPv6]
    ports:
    - {name: http, port: 80, protocol: TCP, nodePort: 30081}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: near-4, namespace: shop, labels: {kubernetes.io/service-name: near}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: [10.244.1.5], nodeName: node-b, conditions: {ready: true}}]
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: near-6, namespace: shop, labels: {kubernetes.io/service-name: near}}
  addressType: IPv6
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: ["fd00:244::5"], nodeName: node-b, conditions: {ready: true}}]
- apiVersion: v1
  kind: Node
  metadata: {name: node-a}
  status: {addresses: [{type: InternalIP, address: 192.0.2.5}]}
`

// TestExplainSaysWhatAConnectionToAnAddressDoes: what leads there, and on loopback also who answers.
func TestExplainSaysWhatAConnectionToAnAddressDoes(t *testing.T) {
	const (
		gate   = " --feature-gates KubeProxyNFTablesLocalhostNodePorts=true"
		served = gate + " --nodeport-addresses primary,localhost"
		onlyV4 = gate + " --nodeport-addresses primary,127.0.0.0/8"
	)
	folder := writeState(t, dialledState)
	for args, want := range map[string][]string{
		"10.96.0.80:80":            {"http: ClusterIP, everybody: balance"},
		"[fd00:96::80]:80":         {"http: ClusterIP, everybody: balance"},
		"192.0.2.5:30080":          {"http: external, everybody: balance", "dns: external, everybody: refuse"},
		"192.0.2.5:30080" + served: {"http: external, everybody: balance", "dns: external, everybody: refuse"},
		"192.0.2.5:30081":          {"http: external, outside: drop", "http: external, inside: balance"},
		"127.0.0.1:30080":          {"http: loopback, node: unserved", "dns: loopback, node: unserved"},
		"127.0.0.1:30080" + gate:   {"http: loopback, node: refuse", "dns: loopback, node: refuse"},
		"127.0.0.1:30080" + served: {"http: loopback, node: balance", "dns: loopback, node: refuse"},
		"[::1]:30080" + served:     {"http: loopback, node: balance", "dns: loopback, node: refuse"},
		"[::1]:30080" + onlyV4:     {"http: loopback, node: refuse", "dns: loopback, node: refuse"},
		"127.0.0.9:30080" + served: {"http: loopback, node: unserved", "dns: loopback, node: refuse"},
		"127.0.0.1:30081" + served: {"http: loopback, node: refuse"}, // Local, and nobody is here
	} {
		t.Run(args, func(t *testing.T) {
			var got []string
			for _, port := range explained(t, append(words("--node node-a --manifests "+folder), words(args)...)...) {
				for _, traffic := range port.Traffic {
					got = append(got, port.Port+": "+traffic.To+", "+traffic.From+": "+traffic.Outcome)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for args, want := range map[string]string{
		"127.0.0.1:30080" + served: "New connections to 127.0.0.1:30080 go to one endpoint, which sees an address of this node. " +
			"They end with the proxy. [balance]",
		"127.0.0.1:30081" + served: "are refused at once, because externalTrafficPolicy is Local and every usable endpoint is on another node.",
		"[::1]:30080" + onlyV4:     "are refused and counted, because nodePortAddresses names no IPv6 loopback address. [refuse]",
		"127.0.0.9:30080" + served: "meet no rule of the proxy, which listens on 127.0.0.1 alone: only what listens there answers. [unserved]",
	} {
		got := proxyCommand(t, append(words("explain --node node-a --manifests "+folder), words(args)...)...)
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: status %d, want %q:\n%s%s", args, got.status, want, got.stdout, got.stderr)
		}
	}
	for args, want := range map[string]string{
		"127.0.0.1:30099":            "no Service in " + folder + " is reached at 127.0.0.1:30099: it is neither a ClusterIP",
		"198.51.100.1:30080":         "is reached at 198.51.100.1:30080",
		"10.96.0.80:80 --why node-b": "--why needs a Service",
	} {
		got := proxyCommand(t, append(words("explain --node node-a --manifests "+folder), words(args)...)...)
		if got.status == 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: status %d, want %q:\n%s%s", args, got.status, want, got.stdout, got.stderr)
		}
	}
}
