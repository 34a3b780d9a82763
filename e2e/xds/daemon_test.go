package xds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The daemon's addresses, and the ClusterIPs of its Service in the manifests and of another Service.
const (
	xdsPort      = 18000
	metricsAddr  = "127.0.0.1:10249"
	xdsClusterIP = "10.96.0.18"
	webClusterIP = "10.96.0.80"
	serverPort   = 8080
)

// testbed is a set of nodes with servers and clients; node-1 and others run the daemon.
type testbed struct {
	t         *testing.T
	manifests string
	nodes     []*fabric.Node
	daemon    *site.Process
	servers   []server
	near, far *fabric.Pod // clients
	socket    string
}

// server is a pod on a node in a zone that replies with its name.
type server struct {
	pod  *fabric.Pod
	node int
	name string
}

// endpointsOf returns the endpoints of some servers.
func (tb *testbed) endpointsOf(which ...int) []endpoint {
	var all []endpoint
	for _, i := range which {
		all = append(all, endpoint{addr: netip.MustParseAddrPort(tb.servers[i].name)})
	}
	return all
}

// newTestbed returns a testbed with two nodes, and every other server on node-1.
func newTestbed(t *testing.T) *testbed {
	t.Helper()
	return newTestbedOf(t, 2, 0, 1, 0, 1)
}

// newTestbedOf returns a testbed with this number of nodes, and a server on each node that is listed.
func newTestbedOf(t *testing.T, nodes int, servers ...int) *testbed {
	t.Helper()
	network := fabrictest.New(t)
	tb := &testbed{t: t, manifests: t.TempDir(), socket: filepath.Join(t.TempDir(), "run", "xds.sock")}
	for i := range nodes {
		node, err := network.AddNode(fmt.Sprintf("node-%d", i+1))
		must.Succeed(t, err)
		tb.nodes = append(tb.nodes, node)
	}
	for i, index := range servers {
		pod, err := tb.nodes[index].AddPod(fmt.Sprintf("server-%d", i))
		must.Succeed(t, err)
		listener, err := pod.Listen("tcp", net.JoinHostPort(pod.IPv4.String(), fmt.Sprint(serverPort)))
		must.Succeed(t, err)
		name := netip.AddrPortFrom(pod.IPv4, serverPort).String()
		greeter := greeterServer(name)
		go func() { _ = greeter.Serve(listener) }() // until it is stopped
		t.Cleanup(greeter.Stop)
		tb.servers = append(tb.servers, server{pod, index, name})
	}
	var err error
	tb.near, err = tb.nodes[0].AddPod("near")
	must.Succeed(t, err)
	tb.far, err = tb.nodes[1].AddPod("far")
	must.Succeed(t, err)
	tb.write("node", tb.node("node-1", "a", ""))
	tb.write("xds", tb.daemonObjects()...)
	return tb
}

// start starts the daemon, and waits for its first sync.
func (tb *testbed) start() {
	tb.t.Helper()
	tb.daemon = tb.startOn(0, fmt.Sprintf("0.0.0.0:%d,unix://%s", xdsPort, tb.socket))
}

// startOn starts a daemon on a node.
func (tb *testbed) startOn(node int, addresses string) *site.Process {
	tb.t.Helper()
	daemon := site.Start(tb.t, tb.nodes[node].Namespace, exec.Command(site.Program(tb.t, "proxy"), "run",
		"--node", fmt.Sprintf("node-%d", node+1), "--manifests", tb.manifests, "--xds-bind-address", addresses))
	daemon.WaitFor(tb.t, "the first sync", func() error {
		if !strings.Contains(daemon.Log.String(), "the first sync is in the kernel") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	return daemon
}

func (tb *testbed) node(name, zone, evacuate string) runtime.Object {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelHostname: name},
	}}
	if evacuate != "" {
		node.Labels[policy.EvacuateLabel] = evacuate
	}
	return node
}

// daemonObjects returns the Service through which clients reach the daemon, as in manifests/xds, with a fixed address.
func (tb *testbed) daemonObjects() []runtime.Object {
	text, err := os.ReadFile("../../manifests/xds/service.yaml")
	must.Succeed(tb.t, err)
	service := &corev1.Service{}
	must.Succeed(tb.t, yaml.UnmarshalStrict(text, service))
	service.Spec.ClusterIP = xdsClusterIP
	service.Spec.ClusterIPs = []string{xdsClusterIP}
	objects := []runtime.Object{service}
	for i, node := range tb.nodes {
		slice := tb.slice("vicinity-xds", "kube-system", node.IPv4, service.Spec.Ports[0].Name, xdsPort, true)
		slice.Endpoints[0].NodeName = new(fmt.Sprintf("node-%d", i+1))
		objects = append(objects, slice)
	}
	return objects
}

func (tb *testbed) slice(service, namespace string, addr netip.Addr, port string, number int32, ready bool) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: service + "-" + strings.ReplaceAll(addr.String(), ".", "-"), Namespace: namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(port), Protocol: new(corev1.ProtocolTCP), Port: new(number)}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{addr.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(ready)},
		}},
	}
}

// state is the variable part of the cluster: the keys of the Service web, whether each server is ready, the zone in its
// slice, the zone of node-1, and which nodes are evacuated.
type state struct {
	keys      string
	ready     []bool
	zones     []string
	zone      string // node-1's zone
	evacuated [2]bool
}

func (tb *testbed) apply(now state) {
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec: corev1.ServiceSpec{
			ClusterIP: webClusterIP, ClusterIPs: []string{webClusterIP},
			Ports: []corev1.ServicePort{{Name: "grpc", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	if now.keys != "" {
		service.Annotations = map[string]string{policy.TopologyKeysAnnotation: now.keys}
	}
	objects := []runtime.Object{service}
	for i, one := range tb.servers {
		slice := tb.slice("web", "shop", one.pod.IPv4, "grpc", serverPort, now.ready[i])
		slice.Endpoints[0].NodeName = new(fmt.Sprintf("node-%d", one.node+1))
		if now.zones[i] != "" {
			slice.Endpoints[0].Zone = new(now.zones[i])
		}
		objects = append(objects, slice)
	}
	for i := range tb.nodes {
		zone, evacuate := "b", ""
		if i == 0 {
			zone = now.zone
		}
		if now.evacuated[i] {
			evacuate = "true"
		}
		objects = append(objects, tb.node(fmt.Sprintf("node-%d", i+1), zone, evacuate))
	}
	must.Succeed(tb.t, os.RemoveAll(filepath.Join(tb.manifests, "node.yaml")))
	tb.write("all", objects...)
}

// write replaces a file atomically.
func (tb *testbed) write(name string, objects ...runtime.Object) {
	tb.t.Helper()
	var text []byte
	for _, object := range objects {
		one, err := yaml.Marshal(object)
		must.Succeed(tb.t, err)
		text = append(append(text, "---\n"...), one...)
	}
	hidden := filepath.Join(tb.manifests, "."+name)
	must.Succeed(tb.t, os.WriteFile(hidden, text, 0o600))
	must.Succeed(tb.t, os.Rename(hidden, filepath.Join(tb.manifests, name+".yaml")))
}

// expectedServers returns the servers that a client on node-1 should reach. It is the simplest possible specification.
func (tb *testbed) expectedServers(now state) []string {
	var usable, staying []int
	for i, one := range tb.servers {
		if now.ready[i] {
			usable = append(usable, i)
			if !now.evacuated[one.node] {
				staying = append(staying, i)
			}
		}
	}
	if want := tb.nearest(now, staying); len(want) > 0 {
		return want
	}
	return tb.nearest(now, usable)
}

func (tb *testbed) nearest(now state, among []int) []string {
	keys := now.keys
	if keys == "" {
		keys = "*"
	}
	for key := range strings.SplitSeq(keys, ", ") {
		var matching []string
		for _, i := range among {
			zone := now.zones[i]
			if zone == "" { // the slice lacks it, so the Node's applies
				zone = []string{now.zone, "b"}[tb.servers[i].node]
			}
			if key == "*" || key == string(policy.Hostname) && tb.servers[i].node == 0 || key == string(policy.Zone) && zone == now.zone {
				matching = append(matching, tb.servers[i].name)
			}
		}
		if len(matching) > 0 {
			slices.Sort(matching)
			return matching
		}
	}
	return nil
}

// serversThroughKernel returns the servers that reply to plain clients on the node, in this number of connections.
func (tb *testbed) serversThroughKernel(c *client, connections int) []string {
	seen := map[string]bool{}
	for range connections {
		got := c.do(command{Channel: "plain", Target: "passthrough:///" + webClusterIP + ":80", Calls: 1, Timeout: 2000, Close: true})
		for name := range got.Answers {
			seen[name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// enoughConnections returns the number of connections that reach all servers, given their number: with four equal
// shares one server is missed once in 10^16 tries, with two once in 10^10.
func enoughConnections(servers int) int { return 4 + 8*servers*servers }

// serversThroughXDS returns the servers that reply to a client that uses xDS, in this number of calls. They may be
// fewer than the endpoints that it receives: gRPC calls those to which it is connected, while it connects to the
// others.
func (tb *testbed) serversThroughXDS(c *client, calls int) []string {
	return slices.Sorted(maps.Keys(c.do(command{Calls: calls, Timeout: 2000}).Answers))
}

const zoneKeys = "kubernetes.io/hostname, topology.kubernetes.io/zone, *"

func (tb *testbed) allReady() state {
	now := state{keys: zoneKeys, zone: "a"}
	for i := range tb.servers {
		now.ready, now.zones = append(now.ready, true), append(now.zones, []string{"a", "b"}[tb.servers[i].node])
	}
	return now
}

// TestClientsOfTheNodeReachTheDaemon covers the Service in manifests/xds and the socket. Clients on other nodes must
// not reach the daemon.
func TestClientsOfTheNodeReachTheDaemon(t *testing.T) {
	s := newTestbed(t)
	s.apply(s.allReady())
	s.start()
	byService := startClient(t, fmt.Sprintf("dns:///%s:%d", xdsClusterIP, xdsPort), s.near.Namespace)
	bySocket := startClient(t, "unix://"+s.socket, s.near.Namespace)
	byNode := startClient(t, fmt.Sprintf("passthrough:///%s:%d", s.nodes[0].IPv4, xdsPort), s.nodes[0].Namespace)
	for what, c := range map[string]*client{"the Service": byService, "the socket": bySocket, "the node itself": byNode} {
		c.expectReaches("through "+what, 0, s.endpointsOf(0, 2)...)
	}
	want := []string{s.servers[0].name, s.servers[2].name}
	if got := s.serversThroughKernel(byService, enoughConnections(len(want))); !slices.Equal(got, want) {
		t.Errorf("through the kernel %v reply, want %v", got, want)
	}
	remote := startClient(t, fmt.Sprintf("passthrough:///%s:%d", s.nodes[0].IPv4, xdsPort), s.far.Namespace)
	if got := remote.do(command{Calls: 1, Timeout: 1000}); len(got.Answers) > 0 {
		t.Errorf("a client on another node got replies: %v", got.Answers)
	}
	s.waitForMetric("vicinity_xds_rejections_total", 1, `reason="remote_client"`)
	s.waitForMetric("vicinity_xds_streams", 3)
	s.waitForMetric("vicinity_xds_responses_total", 0, `result="nacked"`)
	s.daemon.WaitFor(t, "a log line about the rejected client", func() error {
		if log := s.daemon.Log.String(); strings.Count(log, "reason=remote_client") != 1 {
			return fmt.Errorf("log:\n%s", log)
		}
		return nil
	})
}

func (tb *testbed) waitForMetric(name string, atLeast float64, labels ...string) {
	tb.t.Helper()
	wait.Success(tb.t, name, func() error {
		got, err := tb.daemon.Metric(metricsAddr, name, labels...)
		if err == nil && got < atLeast || err == nil && atLeast == 0 && got > 0 {
			err = fmt.Errorf("%v, want %v", got, atLeast)
		}
		return err
	})
}

const changes = 1000

// TestXDSFollowsTheKernel checks, after each of many random changes, that a client which uses xDS reaches the same
// servers as a plain client on the node, and that these are the expected ones.
func TestXDSFollowsTheKernel(t *testing.T) {
	s := newTestbed(t)
	now := s.allReady()
	s.apply(now)
	s.start()
	c := startClient(t, fmt.Sprintf("dns:///%s:%d", xdsClusterIP, xdsPort), s.near.Namespace)
	random := rand.New(rand.NewPCG(36, 1000))
	keys := []string{zoneKeys, "topology.kubernetes.io/zone, *", "topology.kubernetes.io/zone", "kubernetes.io/hostname", "*", ""}
	var delays []time.Duration
	for i := range changes {
		switch k := random.IntN(len(s.servers)); random.IntN(5) {
		case 0:
			now.keys = keys[random.IntN(len(keys))]
		case 1:
			now.ready[k] = !now.ready[k]
		case 2:
			now.zones[k] = []string{"a", "b", ""}[random.IntN(3)]
		case 3:
			now.zone = []string{"a", "b"}[random.IntN(2)]
		case 4:
			now.evacuated[k%2] = !now.evacuated[k%2]
		}
		s.apply(now)
		want := s.expectedServers(now)
		what := fmt.Sprintf("change %d (%+v): replies from %v through ", i, now, want)
		// A file with fewer objects is applied only after two seconds, so the kernel comes first.
		wait.Until(t, what+"the kernel", func() bool { return slices.Equal(s.serversThroughKernel(c, enoughConnections(len(want))), want) })
		began := time.Now()
		wait.Until(t, what+"xDS", func() bool { return slices.Equal(s.serversThroughXDS(c, enoughConnections(len(want))), want) })
		delays = append(delays, time.Since(began))
	}
	slices.Sort(delays)
	median := delays[len(delays)/2]
	t.Logf("delay of xDS clients after the kernel: median %v, p99 %v", median, delays[len(delays)*99/100])
	if median > time.Second { // single changes are late on a busy machine
		t.Errorf("median delay after the kernel: %v, want at most 1s", median)
	}
	s.waitForMetric("vicinity_xds_responses_total", 0, `result="nacked"`)
}

// TestAKilledDaemonFailsNoCall checks that existing channels keep their endpoints, and use the next daemon.
func TestAKilledDaemonFailsNoCall(t *testing.T) {
	s := newTestbed(t)
	now := s.allReady()
	s.apply(now)
	s.start()
	c := startClient(t, fmt.Sprintf("dns:///%s:%d", xdsClusterIP, xdsPort), s.near.Namespace)
	want := []string{s.servers[0].name, s.servers[2].name}
	c.expectReaches("before the daemon is killed", 0, s.endpointsOf(0, 2)...)
	c.do(command{Load: 1000, Timeout: 5000})
	for range 3 {
		must.Succeed(t, s.daemon.Kill())
		time.Sleep(500 * time.Millisecond)
		s.start()
		time.Sleep(time.Second)
	}
	got := c.do(command{Stop: true})
	if len(got.Errors) > 0 || got.Answers[want[0]]+got.Answers[want[1]] < 1000 {
		t.Errorf("while the daemon was killed: errors %s, replies %s", formatCounts(got.Errors), formatCounts(got.Answers))
	}
	now.ready[0] = false
	s.apply(now)
	wait.Equal(t, "servers that reply after the last start", s.servers[2].name,
		func() string { return strings.Join(s.serversThroughXDS(c, 20), " ") })
}

// TestATierThatDropsPackets checks that gRPC leaves the tier after its own timeout of ten seconds, and that a call
// which waits that long does not fail.
func TestATierThatDropsPackets(t *testing.T) {
	s := newTestbed(t)
	s.apply(s.allReady())
	for _, near := range []int{0, 2} {
		_, err := s.servers[near].pod.Run(exec.Command("nft",
			"add table ip mute; add chain ip mute in { type filter hook input priority 0; policy drop; }"))
		must.Succeed(t, err)
	}
	s.start()
	c := startClient(t, fmt.Sprintf("dns:///%s:%d", xdsClusterIP, xdsPort), s.near.Namespace)
	got := c.do(command{Calls: 1, Timeout: 15_000, Wait: true})
	if got.Answers[s.servers[1].name]+got.Answers[s.servers[3].name] != 1 || got.Longest < 9_000_000 {
		t.Errorf("replies %s, errors %s, after %d ms, want a reply from the second tier after at least 9 s",
			formatCounts(got.Answers), formatCounts(got.Errors), got.Longest/1000)
	}
	if got := c.do(command{Calls: 20, Timeout: 10_000}); len(got.Errors) > 0 {
		t.Errorf("errors after that: %s", formatCounts(got.Errors))
	}
}
