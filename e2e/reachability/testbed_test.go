// Package reachability_test tests that new connections avoid a node that does not reply, and no other node: with the
// real program on each node, a real kernel and real connections. It needs root and nft.
//
// To add a failure, add a test to failures_test.go; testbed_test.go has the nodes and the load.
package reachability_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	metricsAddress = "127.0.0.1:10249"
	podPort        = 8080
	// baselineTimeout bounds the time until each node was probed once.
	baselineTimeout = time.Minute
	// clientTimeout is the timeout of most clients.
	clientTimeout = 5 * time.Second
)

var (
	web  = netip.MustParseAddrPort("10.96.0.10:80")
	web6 = netip.MustParseAddrPort("[fd00:96::10]:80")
)

// testbed is node-1 with a client, and other nodes, each in its own zone with an endpoint.
type testbed struct {
	t         *testing.T
	network   *fabric.Fabric
	nodes     []*fabric.Node
	pods      []*fabric.Pod // one on each node
	client    *fabric.Pod   // on node-1
	clients   []*fabric.Pod // client and another pod on node-1
	program   string        // the proxy's
	proxies   []*site.Process
	proxy     *site.Process // of node-1
	manifests string
	// overrides are addresses that Nodes have in place of their own, by index.
	overrides map[int]netip.Addr
	// extraManifests are additional objects.
	extraManifests string
	// unresponsive is the number of nodes that never reply to a probe.
	unresponsive int
}

// newTestbed starts a proxy on each node, and waits until the proxy of node-1 has a baseline of the other nodes.
func newTestbed(t *testing.T, mode string) *testbed {
	t.Helper()
	return newPreparedTestbed(t, mode, func(*testbed) {})
}

// newPreparedTestbed is newTestbed with a preparation before the proxies start.
func newPreparedTestbed(t *testing.T, mode string, prepare func(*testbed)) *testbed {
	t.Helper()
	network := fabrictest.New(t)
	s := &testbed{t: t, network: network, program: site.Program(t, "proxy"), manifests: t.TempDir(), overrides: map[int]netip.Addr{}}
	for i := range 4 {
		node, err := network.AddNode(fmt.Sprintf("node-%d", i+1))
		must.Succeed(t, err)
		pod, err := node.AddPod(fmt.Sprintf("pod-%d", i+1))
		must.Succeed(t, err)
		s.nodes, s.pods = append(s.nodes, node), append(s.pods, pod)
	}
	s.client = s.pods[0]
	another, err := s.nodes[0].AddPod("another")
	must.Succeed(t, err)
	s.clients = []*fabric.Pod{s.client, another}
	prepare(s)
	s.write()
	for _, node := range s.nodes {
		proxy := site.Start(t, node.Namespace, exec.Command(s.program, "run", "--node", node.Name, "--manifests", s.manifests,
			"--cluster-cidr", fabric.PodsIPv4.String()+","+fabric.PodsIPv6.String(), "--unreachable-node-mode", mode))
		proxy.Log.WaitFor(t, "the first sync is in the kernel")
		s.proxies = append(s.proxies, proxy)
	}
	if s.proxy = s.proxies[0]; mode != "off" {
		s.waitForBaselines(2 * (len(s.nodes) - 1 - s.unresponsive))
	}
	return s
}

// write writes the manifests, and makes all pods but the client serve.
func (tb *testbed) write() {
	tb.t.Helper()
	for _, pod := range tb.pods[1:] {
		_, err := pod.Serve(podPort)
		must.Succeed(tb.t, err)
	}
	must.Succeed(tb.t, tb.writeObjects())
}

func (tb *testbed) writeObjects() error {
	var objects, ipv4, ipv6 strings.Builder
	for i, node := range tb.nodes {
		addr := node.IPv4
		if override, isOther := tb.overrides[i]; isOther {
			addr = override
		}
		fmt.Fprintf(&objects, nodeManifest, node.Name, i+1, addr, node.IPv6)
		if i == 0 {
			continue
		}
		fmt.Fprintf(&ipv4, endpointManifest, tb.pods[i].IPv4, node.Name)
		fmt.Fprintf(&ipv6, endpointManifest, tb.pods[i].IPv6, node.Name)
	}
	fmt.Fprintf(&objects, serviceManifest, web.Addr(), web6.Addr())
	fmt.Fprintf(&objects, sliceManifest, "ipv4", "IPv4", ipv4.String())
	fmt.Fprintf(&objects, sliceManifest, "ipv6", "IPv6", ipv6.String())
	objects.WriteString(tb.extraManifests)
	return os.WriteFile(filepath.Join(tb.manifests, "all.yaml"), []byte(objects.String()), 0o600)
}

// waitForBaselines waits until the proxy of node-1 has count baselines, in both families together.
func (tb *testbed) waitForBaselines(count int) {
	tb.t.Helper()
	reachable := func() float64 { return tb.metric("vicinity_reachability_targets", `state="reachable"`) }
	for deadline := time.Now().Add(baselineTimeout); reachable() < float64(count); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			tb.t.Fatalf("not all nodes have baselines:\n%s", tb.proxy.Log)
		}
	}
}

const (
	nodeManifest = `apiVersion: v1
kind: Node
metadata: {name: %[1]s, labels: {topology.kubernetes.io/zone: zone-%[2]d}}
status:
  addresses:
  - {type: InternalIP, address: %[3]s}
  - {type: InternalIP, address: "%[4]s"}
---
`
	serviceManifest = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: %[1]s
  clusterIPs: [%[1]s, "%[2]s"]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {name: tcp, protocol: TCP, port: 80}
`
	sliceManifest = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[1]s, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %[2]s
ports:
- {name: tcp, protocol: TCP, port: 8080}
endpoints:
%[3]s`
	endpointManifest = `- {addresses: ["%s"], nodeName: %s, conditions: {ready: true, serving: true, terminating: false}}
`
)

func (tb *testbed) metric(name string, labels ...string) float64 {
	tb.t.Helper()
	sum, err := tb.proxy.Metric(metricsAddress, name, labels...)
	must.Succeed(tb.t, err)
	return sum
}

// nft loads rules on a machine, in addition to those of the proxy.
func (tb *testbed) nft(machine *fabric.Namespace, rules string) {
	tb.t.Helper()
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(rules)
	_, err := machine.Run(command)
	must.Succeed(tb.t, err)
}

// drop makes a machine drop matching packets from other machines, before anything else processes them. The returned
// function ends that.
func (tb *testbed) drop(machine *fabric.Namespace, matches ...string) (end func()) {
	tb.t.Helper()
	rules := strings.Join(matches, " drop; ") + " drop;"
	tb.nft(machine, `table netdev dark { chain in { type filter hook ingress device "eth0" priority -500; `+rules+" }; }")
	return func() { tb.nft(machine, "delete table netdev dark") }
}

// These match the packets of a machine without power whose neighbours still resolve it, as behind a router; and of one
// without a cable.
var (
	poweredOff    = []string{"meta protocol ip", "icmpv6 type != { nd-neighbor-solicit, nd-neighbor-advert }", "ip6 nexthdr != icmpv6"}
	unpluggedLink = []string{"meta protocol { ip, ip6, arp }"}
)

// dialResults has the results of new connections.
type dialResults struct {
	made, failed, waited int
	maxDuration          time.Duration
	errors               map[string]int
}

// deniedClients matches packets of the clients to a machine's pods.
func (tb *testbed) deniedClients() string {
	return fmt.Sprintf("tcp dport %d ip saddr { %s, %s }", podPort, tb.clients[0].IPv4, tb.clients[1].IPv4)
}

// load dials from the clients in rotation at a rate, for the given period.
func (tb *testbed) load(to netip.AddrPort, perSecond int, period, timeout time.Duration) *dialResults {
	tb.t.Helper()
	return tb.loadFrom(tb.clients, to, perSecond, period, timeout)
}

func (tb *testbed) loadFrom(clients []*fabric.Pod, to netip.AddrPort, perSecond int, period, timeout time.Duration) *dialResults {
	tb.t.Helper()
	all := dialResults{errors: map[string]int{}}
	var mutex sync.Mutex
	var dialling sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for end, turn := time.Now().Add(period), 0; time.Now().Before(end); <-tick.C {
		turn++
		client := clients[turn%len(clients)]
		dialling.Go(func() {
			began := time.Now()
			conn, err := client.Dial("tcp", to.String(), timeout)
			took := time.Since(began)
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
			mutex.Lock()
			defer mutex.Unlock()
			all.made++
			if err != nil {
				all.failed++
				all.errors[kindOf(err)]++
				return
			}
			if took > 500*time.Millisecond {
				all.waited++
			}
			all.maxDuration = max(all.maxDuration, took)
		})
	}
	dialling.Wait()
	return &all
}

// waitForUnreachable waits until count nodes are unreachable, and returns the time that it took.
func (tb *testbed) waitForUnreachable(count float64) time.Duration {
	tb.t.Helper()
	began := time.Now()
	for tb.metric("vicinity_reachability_targets", `state="unreachable"`) != count {
		if time.Since(began) > wait.Timeout {
			tb.t.Fatalf("the number of unreachable nodes does not become %v:\n%s", count, tb.proxy.Log)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(began)
}

// waitForUnreplied waits until a scan finds unreplied connections, or finds none.
func (tb *testbed) waitForUnreplied(want bool) {
	tb.t.Helper()
	wait.Until(tb.t, fmt.Sprintf("unreplied connections: %v", want), func() bool {
		return tb.metric("vicinity_conntrack_unreplied_entries") > 0 == want
	})
}

// expectExplained checks that explain on node-1 names the reason why an endpoint on an unreachable node is skipped.
func (tb *testbed) expectExplained(node *fabric.Node, endpoint netip.Addr) {
	tb.t.Helper()
	output, err := tb.nodes[0].Run(exec.Command(tb.program, "explain", "default/web", "--node", tb.nodes[0].Name, "--manifests", tb.manifests,
		"--why", endpoint.String()))
	if err != nil || !strings.Contains(output, "which has not replied to this node since") ||
		!strings.Contains(output, "make "+node.Name+" reachable from "+tb.nodes[0].Name) {
		tb.t.Errorf("explain --why %s printed: %s (%v)", endpoint, output, err)
	}
}

// expectNoEjection checks that a proxy has ejected no node.
func (tb *testbed) expectNoEjection(proxy *site.Process) {
	tb.t.Helper()
	if ejected := ejectedNodes(proxy); len(ejected) > 0 {
		tb.t.Errorf("ejected %v, want none", ejected)
	}
}

// expectEjected waits until the given number of nodes are unreachable from node-1, and checks that its proxy has
// ejected only the given node.
func (tb *testbed) expectEjected(node *fabric.Node, unreachable float64) {
	tb.t.Helper()
	tb.waitForUnreachable(unreachable)
	if ejected := ejectedNodes(tb.proxy); !slices.Equal(slices.Compact(ejected), []string{node.Name}) {
		tb.t.Errorf("ejected %v, want only %s", ejected, node.Name)
	}
}

// expectOutcome checks that some suspicion had one of the outcomes. Otherwise the test shows nothing.
func (tb *testbed) expectOutcome(outcomes ...string) {
	tb.t.Helper()
	sum := 0.
	for _, outcome := range outcomes {
		sum += tb.metric("vicinity_reachability_suspicions_total", `outcome="`+outcome+`"`)
	}
	if sum == 0 {
		tb.t.Errorf("no suspicion had outcome %v, so nothing was tested", outcomes)
	}
}

var ejectionLine = regexp.MustCompile(`node is unreachable from this node.* unreachableNode=(\S+)`)

// ejectedNodes returns the nodes that a proxy has ejected, in that order.
func ejectedNodes(proxy *site.Process) []string {
	var names []string
	for _, found := range ejectionLine.FindAllStringSubmatch(proxy.Log.String(), -1) {
		names = append(names, found[1])
	}
	return names
}

// kindOf returns a short name of a dial error.
func kindOf(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return "timeout"
}
