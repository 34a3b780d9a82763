package syncer_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// plainObjects is one object of each kind, valid and with every field that the proxy reads.
const plainObjects = `apiVersion: v1
kind: Service
metadata:
  {name: web, namespace: default, creationTimestamp: "2024-01-01T00:00:00Z",
   annotations: {vicinity.dev/topology-keys: "topology.kubernetes.io/zone, *"}}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, "fd00:96::a"]
  externalIPs: [192.0.2.7, "2001:db8::7"]
  loadBalancerSourceRanges: [10.0.0.0/8, "fd00::/8"]
  internalTrafficPolicy: Cluster
  externalTrafficPolicy: Local
  healthCheckNodePort: 32000
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  ports:
  - {name: http, port: 80, nodePort: 30080, protocol: TCP}
  - {name: dns, port: 53, nodePort: 30053, protocol: UDP}
status:
  loadBalancer: {ingress: [{ip: 203.0.113.1, ipMode: VIP}, {ip: "2001:db8:1::1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: default, creationTimestamp: "2025-01-01T00:00:00Z"}
spec: {clusterIP: 10.96.0.11, ports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 5353, protocol: UDP}]
endpoints:
- {addresses: ["10.244.0.5"], nodeName: node-0, zone: zone-a, hints: {forZones: [{name: zone-a}], forNodes: [{name: node-0}]}}
- {addresses: ["10.244.1.5"], nodeName: node-1, zone: zone-b, hints: {forZones: [{name: zone-b}]}, conditions: {ready: true, serving: true}}
---
apiVersion: v1
kind: Node
metadata: {name: node-0, labels: {topology.kubernetes.io/zone: zone-a}}
spec: {podCIDR: 10.244.0.0/24, podCIDRs: [10.244.0.0/24, "fd00:244::/64"]}
status: {addresses: [{type: InternalIP, address: 172.16.0.1}, {type: InternalIP, address: "2001:db8:172::1"}]}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/12, "fd00:96::/108"]}
`

// oddities make plainObjects odd: each is a text and its replacement. The API server accepts most of them: it has no
// rule for the number of a slice's port, for an endpoint's zone, or against two Services with one external IP. An
// object that it denies today may still be in a cluster that is older than the rule, while no update changes that
// field.
var oddities = map[string][2]string{
	"nothing": {"kind: Service", "kind: Service"},

	"an endpoint port above 65535":          {"port: 8080", "port: 70000"},
	"an endpoint port that is negative":     {"port: 8080", "port: -1"},
	"an endpoint port that is zero":         {"port: 8080", "port: 0"},
	"all endpoint ports":                    {"port: 8080, ", ""},
	"two endpoint ports of one name":        {"name: dns, port: 5353, protocol: UDP", "name: http, port: 8081, protocol: TCP"},
	"an endpoint on loopback":               {`"10.244.0.5"`, `"127.0.0.1"`},
	"an endpoint on a link-local address":   {`"10.244.0.5"`, `"169.254.1.1"`},
	"an endpoint that is a multicast group": {`"10.244.0.5"`, `"224.0.0.1"`},
	"an endpoint without an address":        {`"10.244.0.5"`, `"0.0.0.0"`},
	"an endpoint with leading zeros":        {`"10.244.0.5"`, `"010.244.000.005"`},
	"an endpoint mapped into IPv6":          {`"10.244.0.5"`, `"::ffff:10.244.0.5"`},
	"an endpoint of the other family":       {`"10.244.0.5"`, `"fd00:244::5"`},
	"an endpoint with two addresses":        {`["10.244.0.5"]`, `["10.244.0.5", "10.244.0.6"]`},
	"one address twice in a slice":          {`"10.244.1.5"`, `"10.244.0.5"`},
	"an endpoint that is a ClusterIP":       {`"10.244.0.5"`, `"10.96.0.11"`},
	"an endpoint that is its ClusterIP":     {`"10.244.0.5"`, `"10.96.0.10"`},
	"an endpoint that is the node itself":   {`"10.244.0.5"`, `"172.16.0.1"`},
	"a slice of names":                      {"addressType: IPv4", "addressType: FQDN"},
	"a slice of the other family":           {"addressType: IPv4", "addressType: IPv6"},
	"a slice of no Service":                 {"labels: {kubernetes.io/service-name: web}", "labels: {}"},
	"a hint for the empty zone":             {"forZones: [{name: zone-a}]", `forZones: [{name: ""}]`},
	"a hint for no valid zone name":         {"forZones: [{name: zone-a}]", `forZones: [{name: "a b"}]`},
	"a hint for a zone of no node":          {"forZones: [{name: zone-a}]", "forZones: [{name: zone-z}]"},
	"a hint for a node that is unknown":     {"forNodes: [{name: node-0}]", "forNodes: [{name: node-9}]"},
	"an endpoint without hints":             {", hints: {forZones: [{name: zone-b}]}", ""},
	"a zone that is not a label value":      {"zone: zone-b", `zone: "no label/at all"`},
	"a zone that is empty":                  {"topology.kubernetes.io/zone: zone-a", `topology.kubernetes.io/zone: ""`},
	"an endpoint on no node":                {"nodeName: node-1, ", ""},
	"a topology that is not a list of keys": {`"topology.kubernetes.io/zone, *"`, `"*, topology.kubernetes.io/zone"`},

	"ranges that overlap":                    {"[10.0.0.0/8,", "[10.0.0.0/8, 10.1.0.0/16, 10.0.0.0/8,"},
	"ranges that are adjacent":               {"[10.0.0.0/8,", "[10.0.0.0/9, 10.128.0.0/9,"},
	"ranges with host bits and spaces":       {"[10.0.0.0/8,", `[" 10.1.2.3/8 ", 10.1.2.3/9,`},
	"ranges with leading zeros":              {"[10.0.0.0/8,", `["010.000.0.0/08",`},
	"ranges mapped into IPv6":                {"[10.0.0.0/8,", `["::ffff:10.0.0.0/104", "::ffff:0.0.0.0/96",`},
	"ranges of one family":                   {`[10.0.0.0/8, "fd00::/8"]`, "[10.0.0.0/8]"},
	"a range of all":                         {"[10.0.0.0/8,", "[0.0.0.0/0, 10.0.0.0/8,"},
	"a range with the node inside":           {"[10.0.0.0/8,", "[172.16.0.0/12,"},
	"a range with both inside":               {"[10.0.0.0/8,", "[172.16.0.0/12, 203.0.113.0/24,"},
	"a range of the balancer's address":      {"[10.0.0.0/8,", "[172.16.0.0/12, 203.0.113.1/32,"},
	"a range that is not valid":              {"[10.0.0.0/8,", "[10.0.0.0/33,"},
	"an external IP twice":                   {"externalIPs: [192.0.2.7,", `externalIPs: [192.0.2.7, 192.0.2.7, "::ffff:192.0.2.7",`},
	"an external IP on loopback":             {"externalIPs: [192.0.2.7,", "externalIPs: [127.0.0.1,"},
	"an external IP on a link-local address": {"externalIPs: [192.0.2.7,", "externalIPs: [169.254.1.1,"},
	"an external IP that is not specified":   {"externalIPs: [192.0.2.7,", "externalIPs: [0.0.0.0,"},
	"an external IP that is broadcast":       {"externalIPs: [192.0.2.7,", "externalIPs: [255.255.255.255,"},
	"an external IP that is its own":         {"externalIPs: [192.0.2.7,", "externalIPs: [10.96.0.10, 203.0.113.1,"},
	"an external IP that is another's":       {"externalIPs: [192.0.2.7,", "externalIPs: [10.96.0.11,"},
	"an external IP that is the node's":      {"externalIPs: [192.0.2.7,", "externalIPs: [172.16.0.1,"},
	"an external IP that is an endpoint":     {"externalIPs: [192.0.2.7,", "externalIPs: [10.244.0.5,"},
	"a balancer's address twice":             {"ip: 203.0.113.1, ipMode: VIP}", "ip: 203.0.113.1, ipMode: VIP}, {ip: 203.0.113.1}"},
	"a balancer's address in both modes": {"ip: 203.0.113.1, ipMode: VIP}",
		"ip: 203.0.113.1, ipMode: VIP}, {ip: 203.0.113.1, ipMode: Proxy}"},
	"a balancer without an address":       {"{ip: 203.0.113.1, ipMode: VIP}", "{hostname: example.com}, {}"},
	"a balancer that is the ClusterIP":    {"ip: 203.0.113.1", "ip: 10.96.0.10"},
	"a balancer that is a node's address": {"ip: 203.0.113.1", "ip: 172.16.0.1"},
	"a port that is a node port":          {"port: 80, nodePort: 30080", "port: 30080, nodePort: 30080"},
	"a node port above 65535":             {"nodePort: 30080", "nodePort: 95616"},
	"a node port of two protocols":        {"nodePort: 30053", "nodePort: 30080"},
	"two ports with one node port":        {"nodePort: 30053, protocol: UDP", "nodePort: 30080, protocol: TCP"},
	"two ports with one number":           {"port: 53, nodePort: 30053, protocol: UDP", "port: 80, nodePort: 30053, protocol: TCP"},
	"two ports with one name":             {"name: dns, port: 53", "name: http, port: 53"},
	"two ports without names":             {"name: http, port: 80, nodePort: 30080", "port: 80, nodePort: 30080"},
	"a port of SCTP":                      {"nodePort: 30080, protocol: TCP", "nodePort: 30080, protocol: SCTP"},
	"a port of no known protocol":         {"nodePort: 30080, protocol: TCP", "nodePort: 30080, protocol: ICMP"},
	"a health check on a node port":       {"healthCheckNodePort: 32000", "healthCheckNodePort: 30080"},
	"a health check that is negative":     {"healthCheckNodePort: 32000", "healthCheckNodePort: -32000"},
	"a policy that is not valid":          {"externalTrafficPolicy: Local", "externalTrafficPolicy: Nearby"},
	"a policy without effect":             {"type: LoadBalancer", "type: ClusterIP"},
	"both policies Local":                 {"internalTrafficPolicy: Cluster", "internalTrafficPolicy: Local"},
	"a timeout of zero":                   {"timeoutSeconds: 600", "timeoutSeconds: 0"},
	"a timeout beyond a day":              {"timeoutSeconds: 600", "timeoutSeconds: 86401"},
	"a timeout for ever":                  {"timeoutSeconds: 600", "timeoutSeconds: 2147483647"},
	"no timeout":                          {"  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}\n", ""},
	"a Service without ClusterIP":         {"  clusterIP: 10.96.0.10\n  clusterIPs: [10.96.0.10, \"fd00:96::a\"]\n", "  clusterIP: None\n"},
	"a Service of one family":             {`[10.96.0.10, "fd00:96::a"]`, "[10.96.0.10]"},
	"a Service of IPv6 first": {
		"clusterIP: 10.96.0.10\n  clusterIPs: [10.96.0.10, \"fd00:96::a\"]", `clusterIPs: ["fd00:96::a", 10.96.0.10]`},
	"a Service of one family twice":    {`[10.96.0.10, "fd00:96::a"]`, "[10.96.0.10, 10.96.0.12]"},
	"a ClusterIP of two Services":      {"clusterIP: 10.96.0.11", "clusterIP: 10.96.0.10"},
	"a ClusterIP on loopback":          {"clusterIP: 10.96.0.11", "clusterIP: 127.0.0.1"},
	"a ClusterIP that is the node's":   {"clusterIP: 10.96.0.11", "clusterIP: 172.16.0.1"},
	"a ClusterIP that is a balancer's": {"clusterIP: 10.96.0.11", "clusterIP: 203.0.113.1"},
	"a name as long as names may be": {"kubernetes.io/service-name: web}", "kubernetes.io/service-name: " +
		strings.Repeat("w", 63) + "}"},
	"a ServiceCIDR of all addresses":             {"cidrs: [10.96.0.0/12", "cidrs: [0.0.0.0/0"},
	"a ServiceCIDR that overlaps":                {"cidrs: [10.96.0.0/12", "cidrs: [10.96.0.0/12, 10.96.0.0/16"},
	"a ServiceCIDR with the node inside":         {"cidrs: [10.96.0.0/12", "cidrs: [172.16.0.0/12"},
	"a node that has all addresses as its range": {"podCIDRs: [10.244.0.0/24,", "podCIDRs: [0.0.0.0/0,"},
	"a node with two ranges of a family":         {"podCIDRs: [10.244.0.0/24,", "podCIDRs: [10.244.0.0/24, 10.245.0.0/24,"},
	"a node on loopback":                         {"address: 172.16.0.1", "address: 127.0.0.1"},
	"a node that is a name":                      {"address: 172.16.0.1", "address: node-0.example.com"},
	"a node on an address with a zone":           {`address: "2001:db8:172::1"`, `address: "fe80::1%eth0"`},
}

// withOddity returns plainObjects with an oddity, everywhere it fits.
func withOddity(t testing.TB, name string) string {
	t.Helper()
	text := addOddity(plainObjects, name)
	if text == plainObjects && name != "nothing" {
		t.Fatalf("%s: the plain objects do not contain %q", name, oddities[name][0])
	}
	return text
}

// addOddity adds an oddity to a text, if it still fits.
func addOddity(text, name string) string {
	text = strings.ReplaceAll(text, oddities[name][0], oddities[name][1])
	if name == "a name as long as names may be" {
		text = strings.ReplaceAll(text, "{name: web, ", "{name: "+strings.Repeat("w", 63)+", ")
	}
	return text
}

// oddNames are the names of all oddities, sorted.
func oddNames() []string { return slices.Sorted(maps.Keys(oddities)) }
