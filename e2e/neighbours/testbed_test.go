// Package neighbours_test runs programs with rules of their own together with the real proxy on a node, and checks real
// connections: which server responds, and which client it sees. It needs root, nft, and the packages that ./install
// unpacks.
//
// A neighbour is a file with its test here; specs_test.go has the checks that all neighbours share.
package neighbours_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// servicePort is the port that clients dial, podPort the one on which pods serve.
const (
	servicePort = 80
	podPort     = 8080
)

// testbed is two nodes, pods, a machine outside, and the manifests that the proxies on the nodes read.
type testbed struct {
	t *testing.T
	// nodes are node-1, which all clients dial, and node-2.
	nodes []*machine
	// near and client are on node-1, far is on node-2.
	near, far, client *fabric.Pod
	outside           *fabric.Namespace
	manifests         string
	fabric            *fabric.Fabric
	// overlay is the network of pods; nil if the fabric's own is used.
	overlay *overlay
	// policies is the source of NetworkPolicies; nil if there are none.
	policies *policies
	// balancers is the source of MetalLB's Services; nil if MetalLB does not run.
	balancers *balancers
}

// machine is a node with its proxy.
type machine struct {
	*fabric.Node
	testbed *testbed
	proxy   *site.Process
	flags   []string // additional flags of the proxy
	debian  *debian
	// hosted is a pod with a host port.
	hosted *fabric.Pod
	// service is the neighbour's process, if it is a daemon.
	service *site.Process
	// listener serves on the node itself.
	listener *fabric.Server
}

func newTestbed(t *testing.T, flags ...string) *testbed {
	t.Helper()
	network := fabrictest.New(t)
	tb := &testbed{t: t, manifests: t.TempDir(), fabric: network}
	for _, name := range []string{"node-1", "node-2"} {
		node, err := network.AddNode(name)
		must.Succeed(t, err)
		tb.nodes = append(tb.nodes, &machine{Node: node, testbed: tb, flags: flags})
	}
	tb.near, tb.client = tb.addServer(tb.nodes[0], "near"), tb.addServer(tb.nodes[0], "client")
	tb.far = tb.addServer(tb.nodes[1], "far")
	outside, err := network.AddHost("outside", tb.nodes[0].Node)
	must.Succeed(t, err)
	for _, prefix := range servedPrefixes {
		must.Succeed(t, outside.RouteVia(prefix, tb.nodes[0].Namespace))
	}
	tb.outside = outside.Namespace
	tb.writeNodes()
	for _, a := range apps {
		tb.write(a)
	}
	return tb
}

// addServer adds a pod that serves.
func (tb *testbed) addServer(m *machine, name string) *fabric.Pod {
	tb.t.Helper()
	pod, err := m.AddPod(name)
	must.Succeed(tb.t, err)
	_, err = pod.Serve(podPort)
	must.Succeed(tb.t, err)
	return pod
}

// startProxy starts the proxy on a node and waits for its first sync, and for the scan of UDP flows that follows it. At
// a start the proxy cannot know which other program served a node port. So this scan may end a flow to the same port
// number that a neighbour translated. Later scans do not.
func (m *machine) startProxy() {
	t := m.testbed.t
	t.Helper()
	arguments := []string{
		"run", "--node", m.Name, "--manifests", m.testbed.manifests,
		"--cluster-cidr", fabric.PodsIPv4.String() + "," + fabric.PodsIPv6.String(),
	}
	m.proxy = site.Start(t, m.Namespace, exec.Command(site.Program(t, "proxy"), slices.Concat(arguments, m.flags)...))
	m.proxy.WaitFor(t, "the first sync", func() error {
		if !m.proxy.Log.Has("the first sync is in the kernel: ") {
			return errors.New("the proxy has not synced")
		}
		return nil
	})
	m.proxy.WaitFor(t, "the first scan of UDP flows", func() error {
		for _, family := range model.Families {
			scans, err := m.proxy.Metric("127.0.0.1:10249", "kubeproxy_conntrack_reconciler_sync_duration_seconds_count",
				fmt.Sprintf("ip_family=%q", family))
			if err != nil || scans == 0 {
				return errors.Join(fmt.Errorf("no scan of %s flows has finished", family), err)
			}
		}
		return nil
	})
}

// restartProxy stops the proxy as kubelet does, and starts it.
func (m *machine) restartProxy() {
	m.testbed.t.Helper()
	must.Succeed(m.testbed.t, m.proxy.Stop(wait.Timeout))
	m.startProxy()
}

// replace replaces a file in the folder of manifests in one step.
func (tb *testbed) replace(name, text string) {
	tb.t.Helper()
	path := filepath.Join(tb.manifests, name)
	must.Succeed(tb.t, os.WriteFile(path+".new", []byte(text), 0o600))
	must.Succeed(tb.t, os.Rename(path+".new", path))
}

// writeNodes writes the Nodes, with the named ones being evacuated.
func (tb *testbed) writeNodes(evacuated ...string) {
	tb.t.Helper()
	var text strings.Builder
	for _, node := range tb.nodes {
		label := ""
		if slices.Contains(evacuated, node.Name) {
			label = `vicinity.dev/evacuate: "true"`
		}
		fmt.Fprintf(&text, nodeManifest, node.Name, label, node.IPv4, node.IPv6)
	}
	tb.replace("nodes.yaml", text.String())
}

// app is a Service. Its number is the last byte of its addresses, and determines its node port.
type app struct {
	name      string
	number    int
	policy    string // the value of both internalTrafficPolicy and externalTrafficPolicy
	endpoints []string
}

// These are the Services. Those with one endpoint have a known server.
var (
	nearApp  = app{"near", 10, "Cluster", []string{"near"}}
	farApp   = app{"far", 11, "Cluster", []string{"far"}}
	bothApp  = app{"both", 12, "Cluster", []string{"near", "far"}}
	localApp = app{"local", 13, "Local", []string{"near", "far"}}
	apps     = []app{nearApp, farApp, bothApp, localApp, dnsApp}
)

// servedPrefixes contain the addresses of external IPs and load balancers. The cluster IPs are inside the fabric's
// ranges.
var servedPrefixes = []netip.Prefix{
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:0:e::/64"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:0:b::/64"),
}

func (a app) nodePort() uint16 { return uint16(30000 + a.number) }

// addrs returns addresses of both families that end with the Service's number.
func (a app) addrs(ipv4, ipv6 string) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(fmt.Sprintf("%s.%d", ipv4, a.number)), netip.MustParseAddr(fmt.Sprintf("%s::%x", ipv6, a.number))}
}

func (a app) clusterIPs() []netip.Addr  { return a.addrs("10.96.0", "fd00:96") }
func (a app) externalIPs() []netip.Addr { return a.addrs("203.0.113", "2001:db8:0:e") }
func (a app) balancerIPs() []netip.Addr { return a.addrs("198.51.100", "2001:db8:0:b") }

// write writes a Service and its EndpointSlices.
func (tb *testbed) write(a app) {
	tb.t.Helper()
	cluster, external, balancer := a.clusterIPs(), a.externalIPs(), a.balancerIPs()
	var text strings.Builder
	fmt.Fprintf(&text, serviceManifest, a.name, a.policy, cluster[0], cluster[1], external[0], external[1], balancer[0], balancer[1],
		servicePort, a.nodePort())
	for _, family := range model.Families {
		fmt.Fprintf(&text, sliceManifest, a.name, strings.ToLower(family.String()), family, podPort)
		for _, pod := range []*fabric.Pod{tb.near, tb.far} {
			if slices.Contains(a.endpoints, pod.Name) {
				fmt.Fprintf(&text, endpointManifest, addrOf(pod.Namespace, family), pod.Node.Name)
			}
		}
	}
	tb.replace(a.name+".yaml", text.String())
}

func addrOf(n *fabric.Namespace, family model.Family) netip.Addr {
	if family == model.IPv4 {
		return n.IPv4
	}
	return n.IPv6
}

const (
	nodeManifest = `---
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {%s}}
status:
  addresses:
  - {type: InternalIP, address: %s}
  - {type: InternalIP, address: "%s"}
`
	serviceManifest = `apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  type: LoadBalancer
  internalTrafficPolicy: %[2]s
  externalTrafficPolicy: %[2]s
  clusterIP: %[3]s
  clusterIPs: [%[3]s, "%[4]s"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  externalIPs: [%[5]s, "%[6]s"]
  ports:
  - {name: tcp, protocol: TCP, port: %[9]d, nodePort: %[10]d}
  - {name: udp, protocol: UDP, port: %[9]d, nodePort: %[10]d}
  - {name: sctp, protocol: SCTP, port: %[9]d, nodePort: %[10]d}
status: {loadBalancer: {ingress: [{ip: %[7]s}, {ip: "%[8]s"}]}}
`
	sliceManifest = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports:
- {name: tcp, protocol: TCP, port: %[4]d}
- {name: udp, protocol: UDP, port: %[4]d}
- {name: sctp, protocol: SCTP, port: %[4]d}
endpoints:
`
	endpointManifest = `- {addresses: ["%s"], nodeName: %s, conditions: {ready: true, serving: true, terminating: false}}
`
)
