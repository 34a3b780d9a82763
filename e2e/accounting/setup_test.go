// Package accounting_test tests that the proxy counts connections and their bytes: it compares the metrics of the real
// program on each node with the counts of real clients. It needs root and nft.
//
// To test another kind of traffic, see zones_test.go; setup_test.go has the nodes and Services.
package accounting_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	metricsAddress = "127.0.0.1:10249"
	servicePort    = 80
	greetPort      = 8080 // of pods: the response names the pod
	transferPort   = 8081 // of pods: transfers in both directions
)

// setup is three zones and a node without one. Clients run on the first node, which is in zone-a.
type setup struct {
	t       testing.TB
	network *fabric.Fabric
	// local has the clients, sameZone is in its zone, otherZone in another one, and noZone has none.
	local, sameZone, otherZone, noZone *fabric.Node
	client                             *fabric.Pod
	manifests                          string
	services                           []*service
	table                              *conntrack.Conn // of local
}

// service is a Service whose endpoints are all in one location.
type service struct {
	name      string
	number    byte // of its addresses and of its node port
	keys      string
	endpoints []endpoint
	port      int // of the endpoints
}

type endpoint struct {
	pod       *fabric.Pod
	hasNoNode bool // its EndpointSlice names no node
}

func (s *service) ipv4() netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 1, s.number}) }
func (s *service) ipv6() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd00:96::1:%x", s.number))
}
func (s *service) nodePort() uint16 { return 30000 + uint16(s.number) }

// clusterIP returns the Service's ClusterIP and port in a family.
func (s *service) clusterIP(family model.Family) netip.AddrPort {
	if family == model.IPv4 {
		return netip.AddrPortFrom(s.ipv4(), servicePort)
	}
	return netip.AddrPortFrom(s.ipv6(), servicePort)
}

func newSetup(t testing.TB) *setup {
	t.Helper()
	s := &setup{t: t, network: fabrictest.New(t), manifests: t.TempDir()}
	for name, node := range map[string]**fabric.Node{"local": &s.local, "in-zone": &s.sameZone, "off-zone": &s.otherZone,
		"no-zone": &s.noZone} {
		var err error
		*node, err = s.network.AddNode(name)
		must.Succeed(t, err)
	}
	s.client = s.addPod(s.local, "client")
	must.Succeed(t, s.local.Do(func() (err error) { s.table, err = conntrack.Dial(); return err }))
	t.Cleanup(func() { _ = s.table.Close() })
	return s
}

func (s *setup) addPod(node *fabric.Node, name string) *fabric.Pod {
	s.t.Helper()
	pod, err := node.AddPod(name)
	must.Succeed(s.t, err)
	_, err = pod.Serve(greetPort)
	must.Succeed(s.t, err)
	_, err = pod.ServeTransfers(transferPort)
	must.Succeed(s.t, err)
	return pod
}

// add adds a Service. write then writes it to the proxies' manifests.
func (s *setup) add(name, keys string, endpoints ...endpoint) *service {
	added := &service{name: name, number: byte(len(s.services) + 1), keys: keys, endpoints: endpoints, port: greetPort}
	s.services = append(s.services, added)
	return added
}

// write writes all objects.
func (s *setup) write() {
	s.t.Helper()
	var objects strings.Builder
	for node, labels := range map[*fabric.Node]string{
		s.local:     "topology.kubernetes.io/zone: zone-a, tenants.example/rack: one",
		s.sameZone:  "topology.kubernetes.io/zone: zone-a, tenants.example/rack: two",
		s.otherZone: "topology.kubernetes.io/zone: zone-b, tenants.example/rack: one",
		s.noZone:    "",
	} {
		fmt.Fprintf(&objects, nodeManifest, node.Name, labels, node.IPv4, node.IPv6)
	}
	for _, svc := range s.services {
		fmt.Fprintf(&objects, serviceManifest, svc.name, svc.keys, svc.ipv4(), svc.ipv6(), svc.nodePort())
		var ipv4, ipv6 strings.Builder
		for _, endpoint := range svc.endpoints {
			nodeName := ", nodeName: " + endpoint.pod.Node.Name
			if endpoint.hasNoNode {
				nodeName = ""
			}
			fmt.Fprintf(&ipv4, endpointManifest, endpoint.pod.IPv4, nodeName)
			fmt.Fprintf(&ipv6, endpointManifest, endpoint.pod.IPv6, nodeName)
		}
		fmt.Fprintf(&objects, sliceManifest, svc.name, "ipv4", "IPv4", svc.port, ipv4.String())
		fmt.Fprintf(&objects, sliceManifest, svc.name, "ipv6", "IPv6", svc.port, ipv6.String())
	}
	file := filepath.Join(s.manifests, "all.yaml")
	must.Succeed(s.t, os.WriteFile(file+".new", []byte(objects.String()), 0o600))
	must.Succeed(s.t, os.Rename(file+".new", file))
}

const (
	nodeManifest = `---
apiVersion: v1
kind: Node
metadata: {name: %[1]s, labels: {%[2]s}}
status:
  addresses:
  - {type: InternalIP, address: %[3]s}
  - {type: InternalIP, address: "%[4]s"}
`
	serviceManifest = `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop, annotations: {vicinity.dev/topology-keys: "%[2]s"}}
spec:
  type: NodePort
  clusterIP: %[3]s
  clusterIPs: [%[3]s, "%[4]s"]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {name: tcp, protocol: TCP, port: 80, nodePort: %[5]d}
  - {name: udp, protocol: UDP, port: 80, nodePort: %[5]d}
  - {name: sctp, protocol: SCTP, port: 80, nodePort: %[5]d}
`
	sliceManifest = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: "%[1]s-%[2]s", namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports:
- {name: tcp, protocol: TCP, port: %[4]d}
- {name: udp, protocol: UDP, port: %[4]d}
- {name: sctp, protocol: SCTP, port: %[4]d}
endpoints:
%[5]s`
	endpointManifest = `- {addresses: ["%s"]%s, conditions: {ready: true, serving: true, terminating: false}}
`
)

// command returns the command of a node's proxy, with additional flags.
func (s *setup) command(node *fabric.Node, flags ...string) *exec.Cmd {
	s.t.Helper()
	return exec.Command(site.Program(s.t, "proxy"), append([]string{
		"run", "--node", node.Name, "--manifests", s.manifests, "--cluster-cidr", fabric.PodsIPv4.String() + "," + fabric.PodsIPv6.String(),
	}, flags...)...)
}

// start starts a proxy, and waits until it serves.
func (s *setup) start(node *fabric.Node, command *exec.Cmd) *site.Process {
	s.t.Helper()
	proxy := site.Start(s.t, node.Namespace, command)
	proxy.Log.WaitFor(s.t, "the first sync is in the kernel")
	return proxy
}

// startCounting starts a proxy that counts, and waits until it receives destroy events.
func (s *setup) startCounting(node *fabric.Node, flags ...string) *site.Process {
	s.t.Helper()
	proxy := s.start(node, s.command(node, append(flags, "--traffic-accounting", "services")...))
	wait.Until(s.t, "a listener for destroy events", func() bool { return s.hasDestroyListener(node) })
	return proxy
}

// hasDestroyListener reports whether a socket on a node listens for destroy events of conntrack.
func (s *setup) hasDestroyListener(node *fabric.Node) bool {
	s.t.Helper()
	var text []byte
	must.Succeed(s.t, node.Do(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/netlink"); return err }))
	for line := range strings.Lines(string(text)) {
		const netfilter, destroyed = "12", 1 << 2
		fields := strings.Fields(line) // fields: socket, protocol, port, groups
		if groups, err := strconv.ParseUint(fields[3], 16, 32); err == nil && fields[1] == netfilter && groups&destroyed != 0 {
			return true
		}
	}
	return false
}

// nonzeroSeries returns the series of some metrics of a proxy, without those that are 0.
func (s *setup) nonzeroSeries(node *fabric.Node, names ...string) map[string]uint64 {
	s.t.Helper()
	page, err := site.Page(node.Namespace, metricsAddress, "/metrics")
	must.Succeed(s.t, err)
	found := map[string]uint64{}
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		series, text, _ := strings.Cut(lines.Text(), " ")
		for _, name := range names {
			if metric, _, _ := strings.Cut(series, "{"); metric != name {
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			must.Succeed(s.t, err)
			if value != 0 {
				found[series] = uint64(value)
			}
		}
	}
	return found
}

// total returns the sum of all series of a metric.
func (s *setup) total(node *fabric.Node, name string) (sum uint64) {
	s.t.Helper()
	for _, value := range s.nonzeroSeries(node, name) {
		sum += value
	}
	return sum
}

// translatedIn returns the entries of a table that have a translated destination.
func (s *setup) translatedIn(table *conntrack.Conn) (all []conntrack.Entry) {
	s.t.Helper()
	_, err := table.Dump(s.t.Context(), conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT},
		func(e *conntrack.Entry) bool { all = append(all, *e); return true })
	if err != nil && !errors.Is(err, conntrack.ErrInterrupted) {
		s.t.Fatal(err)
	}
	return all
}

// end ends all connections that both peers have closed.
func (s *setup) end() { s.endMatching(func(netip.AddrPort) bool { return true }) }

// endMatching ends the connections to certain addresses. It waits for their last packets, because a packet that arrives
// later would start another entry.
func (s *setup) endMatching(matches func(origDst netip.AddrPort) bool) { s.endIn(s.table, matches) }

func (s *setup) endIn(table *conntrack.Conn, matches func(origDst netip.AddrPort) bool) {
	s.t.Helper()
	const lastPacketDelay = 500 * time.Millisecond
	time.Sleep(lastPacketDelay)
	for _, e := range s.translatedIn(table) {
		if matches(e.OrigDst()) {
			_, err := table.Delete(&e)
			must.Succeed(s.t, err)
		}
	}
}
