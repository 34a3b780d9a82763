package main

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// explainedManifests has a Service with node ports of TCP and UDP, and one with externalTrafficPolicy Local. The
// endpoints are on another node.
const explainedManifests = `apiVersion: v1
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

// TestExplainReportsTheOutcomeAtAnAddress checks that explain names the rules that apply at an address, and for
// loopback also the program that serves.
func TestExplainReportsTheOutcomeAtAnAddress(t *testing.T) {
	const (
		gate   = " --feature-gates KubeProxyNFTablesLocalhostNodePorts=true"
		served = gate + " --nodeport-addresses primary,localhost"
		onlyV4 = gate + " --nodeport-addresses primary,127.0.0.0/8"
	)
	folder := writeManifests(t, explainedManifests)
	for args, want := range map[string][]string{
		"10.96.0.80:80":            {"http: ClusterIP, everybody: balance", ": address, everybody: refuse"}, // over UDP and SCTP
		"[fd00:96::80]:80":         {"http: ClusterIP, everybody: balance", ": address, everybody: refuse"},
		"192.0.2.5:30080":          {"http: external, everybody: balance", "dns: external, everybody: refuse"},
		"192.0.2.5:30080" + served: {"http: external, everybody: balance", "dns: external, everybody: refuse"},
		"192.0.2.5:30081":          {"http: external, outside: drop", "http: external, inside: balance"},
		"127.0.0.1:30080":          {"http: loopback, node: unserved", "dns: loopback, node: unserved"},
		"127.0.0.1:30080" + gate:   {"http: loopback, node: refuse", "dns: loopback, node: refuse"},
		"127.0.0.1:30080" + served: {"http: loopback, node: balance", "dns: loopback, node: refuse"},
		"[::1]:30080" + served:     {"http: loopback, node: balance", "dns: loopback, node: refuse"},
		"[::1]:30080" + onlyV4:     {"http: loopback, node: refuse", "dns: loopback, node: refuse"},
		"127.0.0.9:30080" + served: {"http: loopback, node: unserved", "dns: loopback, node: refuse"},
		"127.0.0.1:30081" + served: {"http: loopback, node: refuse"}, // Local, and no endpoint is here
	} {
		t.Run(args, func(t *testing.T) {
			var got []string
			for _, port := range explainPorts(t, append(splitArgs("--node node-a --manifests "+folder), splitArgs(args)...)...) {
				for _, traffic := range port.Traffic {
					got = append(got, port.Port+": "+traffic.To+", "+traffic.From+": "+traffic.Outcome)
				}
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("traffic (-want +got):\n%s", diff)
			}
		})
	}
	for args, want := range map[string]string{
		"127.0.0.1:30080" + served: "New connections to 127.0.0.1:30080 go to one endpoint, which sees an address of this node. " +
			"They end with the proxy. [balance]",
		"127.0.0.1:30081" + served: "are refused at once, because externalTrafficPolicy is Local and every usable endpoint is on another node.",
		"[::1]:30080" + onlyV4:     "are refused and counted, because nodePortAddresses names no IPv6 loopback address. [refuse]",
		"127.0.0.9:30080" + served: "match no rule of the proxy, which listens only on 127.0.0.1: another program may serve them. [unserved]",
	} {
		got := proxyCommand(t, append(splitArgs("explain --node node-a --manifests "+folder), splitArgs(args)...)...)
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: status %d, want %q:\n%s%s", args, got.status, want, got.stdout, got.stderr)
		}
	}
	for args, want := range map[string]string{
		"127.0.0.1:30099":            "no Service in " + folder + " is reached at 127.0.0.1:30099: it is neither a ClusterIP",
		"198.51.100.1:30080":         "is reached at 198.51.100.1:30080",
		"10.96.0.80:80 --why node-b": "--why needs a Service",
	} {
		got := proxyCommand(t, append(splitArgs("explain --node node-a --manifests "+folder), splitArgs(args)...)...)
		if got.status == 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: status %d, want %q:\n%s%s", args, got.status, want, got.stdout, got.stderr)
		}
	}
}

// TestExplainReportsRulesForUndefinedPorts: a ClusterIP rejects the ports that its Service does not define,
// for each protocol. Addresses in a ServiceCIDR without a Service are dropped, external IPs included.
func TestExplainReportsRulesForUndefinedPorts(t *testing.T) {
	folder := writeManifests(t, explainedManifests+`- apiVersion: networking.k8s.io/v1
  kind: ServiceCIDR
  metadata: {name: kubernetes}
  spec: {cidrs: [10.96.0.0/16, "fd00:96::/112"]}
- apiVersion: v1
  kind: Service
  metadata: {name: outside, namespace: shop}
  spec:
    clusterIP: 10.96.0.82
    externalIPs: [10.96.200.1, 203.0.113.1]
    ports: [{name: http, port: 80, protocol: TCP}]
`)
	const undefined = "/TCP,UDP,SCTP: refuse"
	for args, want := range map[string][]string{
		"10.96.0.80:81":     {"shop/web 10.96.0.80:81" + undefined},
		"[fd00:96::80]:81":  {"shop/web [fd00:96::80]:81" + undefined},
		"10.96.0.80:30080":  {"shop/web 10.96.0.80:30080" + undefined},
		"10.96.0.80:53":     {"shop/web /UDP: refuse", "shop/web 10.96.0.80:53/TCP,SCTP: refuse"},
		"10.96.0.81:80":     {"shop/near /TCP: balance", "shop/near 10.96.0.81:80/UDP,SCTP: refuse"},
		"10.96.9.9:80":      {" 10.96.9.9:80/TCP,UDP,SCTP: drop"},
		"[fd00:96::99]:443": {" [fd00:96::99]:443/TCP,UDP,SCTP: drop"},
		"10.96.200.1:80":    {"shop/outside /TCP: refuse", " 10.96.200.1:80/UDP,SCTP: drop"},
		"10.96.200.1:81":    {" 10.96.200.1:81/TCP,UDP,SCTP: drop"},
		"203.0.113.1:80":    {"shop/outside /TCP: refuse"},
	} {
		var got []string
		for _, port := range explainPorts(t, append(splitArgs("--node node-a --manifests "+folder), splitArgs(args)...)...) {
			protocols := cmp.Or(strings.Join(port.Protocols, ","), port.Protocol)
			got = append(got, fmt.Sprintf("%s %s/%s: %s", port.Service, port.Address, protocols, port.Traffic[0].Outcome))
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	for args, want := range map[string]string{
		"10.96.0.81:81": "10.96.0.81:81 TCP UDP SCTP IPv4 on node-a\n" +
			"  address    New connections to 10.96.0.81:81 over TCP, UDP and SCTP are refused at once, because 10.96.0.81 is the ClusterIP of " +
			"shop/near, which has http 80/TCP. If the node has the address itself, the proxy does not handle them. [refuse]\n",
		"10.96.9.9:80": "10.96.9.9:80 TCP UDP SCTP IPv4 on node-a\n" +
			"  address    New connections to 10.96.9.9:80 over TCP, UDP and SCTP are dropped, because 10.96.9.9 is in the ServiceCIDR " +
			"10.96.0.0/16 and is the ClusterIP of no Service that this proxy serves, unless another program has translated them. " +
			"If the node has the address itself, the proxy does not handle them. [drop]\n",
	} {
		got := proxyCommand(t, append(splitArgs("explain --node node-a --manifests "+folder), splitArgs(args)...)...)
		if diff := gocmp.Diff(outcome{stdout: want}, got, gocmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	got := proxyCommand(t, splitArgs("explain --node node-a 203.0.113.1:81 --manifests "+folder)...)
	if got.status == 0 || !strings.Contains(got.stderr, "the proxy does not handle connections there") {
		t.Errorf("an external IP's other port: status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
}

// TestExplainDialsFromEachNode: an address may be served on some nodes only, and node ports only on the configured
// addresses.
func TestExplainDialsFromEachNode(t *testing.T) {
	folder := writeManifests(t, explainedManifests+`- apiVersion: v1
  kind: Node
  metadata: {name: node-0}
  status: {addresses: [{type: InternalIP, address: 192.0.2.4}]}
`)
	got := proxyCommand(t, splitArgs("explain --all-nodes 192.0.2.5:30081 --manifests "+folder)...)
	if got.status != 0 || strings.Count(got.stdout, " on node-a\n") != 1 || strings.Contains(got.stdout, "node-0") {
		t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	for _, args := range []string{
		"--all-nodes 192.0.2.6:30081", "--node node-a --nodeport-addresses 198.51.100.0/24 192.0.2.5:30081",
	} {
		got := proxyCommand(t, append(splitArgs("explain --manifests "+folder), splitArgs(args)...)...)
		if got.status == 0 || !strings.Contains(got.stderr, "no Service in "+folder+" is reached at") {
			t.Errorf("%s: status %d\n%s%s", args, got.status, got.stdout, got.stderr)
		}
	}
}
