// Package packets proves with real connections what the tables do: small networks of namespaces, the proxy's own code on
// every node, and servers that say whom they see. It needs root.
package packets_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// The port that clients dial and the one on which pods serve.
const (
	servicePort = 80
	podPort     = 8080
)

var (
	serviceIPv4 = netip.MustParseAddr("10.96.0.10")
	serviceIPv6 = netip.MustParseAddr("fd00:96::a")
	serviceName = model.ObjectName{Namespace: "default", Name: "web"}
)

// cluster is a fabric with the proxy on every node.
type cluster struct {
	t      *testing.T
	fabric *fabric.Fabric
	config ruleset.Config
	nodes  []*node
	// everything is the state of the cluster, for proxies that start later.
	everything model.Change
}

// node is a node with its proxy.
type node struct {
	*fabric.Node
	conn  *nft.Conn
	proxy *proxy.Proxy
}

// pod is a serving pod, and the endpoint it is.
type pod struct {
	*fabric.Pod
	zone string
}

// newCluster returns a cluster with nodes node-1, node-2, … Their pods' addresses are local traffic.
func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	return newClusterWith(t, nodes, ruleset.Config{
		Families:     model.Families,
		LocalTraffic: []netip.Prefix{fabric.PodsIPv4, fabric.PodsIPv6},
	})
}

func newClusterWith(t *testing.T, nodes int, config ruleset.Config) *cluster {
	t.Helper()
	built, err := fabric.New()
	if err != nil {
		t.Fatalf("build a network (this needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := built.Close(); err != nil {
			t.Errorf("take the network down: %v", err)
		}
	})
	c := &cluster{t: t, fabric: built, config: config}
	for number := range nodes {
		c.addNode(fmt.Sprintf("node-%d", number+1))
	}
	return c
}

func (c *cluster) addNode(name string) {
	c.t.Helper()
	machine, err := c.fabric.AddNode(name)
	if err != nil {
		c.t.Fatal(err)
	}
	added := &node{Node: machine}
	if err := machine.Do(func() (err error) { added.conn, err = nft.Dial(nft.Options{Owned: true}); return err }); err != nil {
		c.t.Fatalf("dial nftables on %s: %v", name, err)
	}
	c.t.Cleanup(func() { added.conn.Close() })
	c.nodes = append(c.nodes, added)
	c.restart(added)
}

// restart puts a new proxy on a node that knows nothing but the cluster and finds the kernel as it is.
func (c *cluster) restart(n *node) {
	n.proxy = proxy.New(n.Name, c.config, n.conn)
	n.proxy.Apply(c.everything)
}

// apply tells every proxy what changed, and waits until all kernels have it.
func (c *cluster) apply(change model.Change) {
	c.t.Helper()
	c.everything = c.everything.Then(change)
	for _, n := range c.nodes {
		n.proxy.Apply(change)
		c.sync(n)
	}
}

func (c *cluster) sync(n *node) {
	c.t.Helper()
	report, err := n.proxy.Sync(c.t.Context())
	if err != nil || report.Unswept != nil {
		c.t.Fatalf("sync of %s: %v, %v", n.Name, err, report.Unswept)
	}
}

// addPod adds a pod that only dials.
func (c *cluster) addPod(n *node, name string) *fabric.Pod {
	c.t.Helper()
	added, err := n.AddPod(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return added
}

// addServer adds a pod that serves TCP, UDP and SCTP in both families.
func (c *cluster) addServer(n *node, name string) *pod {
	c.t.Helper()
	added := c.addPod(n, name)
	if _, err := added.Serve(podPort); err != nil {
		c.t.Fatal(err)
	}
	return &pod{Pod: added, zone: "zone-of-" + n.Name}
}

// service returns the Service that all tests dial, in both families and with all protocols on one port number.
func service(edit ...func(*model.Service)) model.Change {
	s := &model.Service{
		Name:       serviceName,
		ClusterIPs: []netip.Addr{serviceIPv4, serviceIPv6},
		Ports: []model.ServicePort{
			{Name: "tcp", Protocol: model.TCP, Port: servicePort},
			{Name: "udp", Protocol: model.UDP, Port: servicePort},
			{Name: "sctp", Protocol: model.SCTP, Port: servicePort},
		},
	}
	for _, e := range edit {
		e(s)
	}
	return model.Change{Services: map[model.ObjectName]*model.Service{s.Name: s}}
}

func affinity(timeout time.Duration) func(*model.Service) {
	return func(s *model.Service) { s.AffinityTimeout = timeout }
}

// endpoints returns the slices that make the pods the Service's ready endpoints, and nobody else.
func endpoints(pods ...*pod) model.Change {
	change := model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for _, family := range model.Families {
		slice := &model.EndpointSlice{
			Name:    model.ObjectName{Namespace: "default", Name: "web-" + family.String()},
			Service: serviceName,
			Family:  family,
			Ports: []model.SlicePort{
				{Name: "tcp", Protocol: model.TCP, Port: podPort},
				{Name: "udp", Protocol: model.UDP, Port: podPort},
				{Name: "sctp", Protocol: model.SCTP, Port: podPort},
			},
		}
		for _, p := range pods {
			addr := p.IPv4
			if family == model.IPv6 {
				addr = p.IPv6
			}
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr:     addr,
				Endpoint: model.Endpoint{Node: p.Node.Name, Zone: p.zone, Ready: true, Serving: true},
			})
		}
		change.Slices[slice.Name] = slice
	}
	return change
}

// path is a way to dial the Service.
type path struct {
	network string
	addr    netip.AddrPort
}

func (p path) String() string { return p.network + " " + p.addr.String() }

// paths are all ways to dial the Service: three protocols in two families.
var paths = func() []path {
	var all []path
	for _, addr := range []netip.Addr{serviceIPv4, serviceIPv6} {
		for _, network := range []string{"tcp", "udp", "sctp"} {
			all = append(all, path{network, netip.AddrPortFrom(addr, servicePort)})
		}
	}
	return all
}()

// own returns the client's own address in the family of a path.
func (p path) own(client *fabric.Namespace) netip.Addr {
	if p.addr.Addr().Is4() {
		return client.IPv4
	}
	return client.IPv6
}

// mustAsk dials the Service and returns who answered.
func mustAsk(t *testing.T, client *fabric.Namespace, to path) fabric.Reply {
	t.Helper()
	reply, err := client.Ask(to.network, to.addr, fabric.Patience)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
