// Package packets proves with real connections what the tables do: small networks of namespaces, the proxy's own code
// on every node, and servers that say whom they see. It needs root.
package packets_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/conntrackgc"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// cluster is a fabric with the proxy on every node.
type cluster struct {
	t      *testing.T
	fabric *fabric.Fabric
	setup  setup
	nodes  []*node
	// everything is the state of the cluster, for proxies that start later.
	everything model.Change
}

// setup is what a cluster is made with.
type setup struct {
	nodes  int
	config ruleset.Config
	// bridged: every node sees its pods behind one bridge.
	bridged bool
	// notOwned lets nft change the tables too.
	notOwned bool
}

// node is a node with its proxy.
type node struct {
	*fabric.Node
	conn   *nft.Conn
	flows  *conntrack.Conn
	routes *interfaces.Routes
	owners *serviceindex.Index
	proxy  *syncer.Proxy
	// local are the addresses of its interfaces, as last reported to its proxy.
	local []netip.Addr
	// readers are of its proxy, beside the one that ends flows.
	readers []selection.Handler
}

// concurrentFlows ends flows of UDP before Synced returns, so that a test need not wait.
type concurrentFlows struct {
	*serviceindex.Index
	t          *testing.T
	reconciler *conntrackgc.Reconciler
}

func (f concurrentFlows) OnSynced(sync selection.SyncState) {
	f.Index.OnSynced(sync)
	if _, err := f.reconciler.CleanOnce(f.t.Context()); err != nil {
		f.t.Errorf("end flows: %v", err)
	}
}

// onlyUDP is a table without the other protocols: tests that are about dials run a reconciler for them.
type onlyUDP struct{ conntrack.Table }

func (o onlyUDP) Dump(ctx context.Context, filter conntrack.Filter, each func(*conntrack.Entry) bool) (time.Duration, error) {
	return o.Table.Dump(ctx, filter, func(e *conntrack.Entry) bool { return e.Protocol != model.UDP || each(e) })
}

// pod is a serving pod, and the endpoint it is.
type pod struct {
	*fabric.Pod
	zone string
}

// clusterCIDR is the configuration that most clusters have: pods are known by their addresses, node ports are served
// on the node's own.
func clusterCIDR() ruleset.Config {
	return ruleset.Config{
		Families:     model.Families,
		LocalTraffic: ruleset.LocalTraffic{Prefixes: []netip.Prefix{fabric.PodsIPv4, fabric.PodsIPv6}},
		NodePorts:    model.NodePortAddresses{Primary: true},
	}
}

// withoutDetector is a configuration in which the proxy does not know which clients are pods.
func withoutDetector() ruleset.Config {
	config := clusterCIDR()
	config.LocalTraffic = ruleset.LocalTraffic{}
	return config
}

// newCluster returns a cluster with nodes node-1, node-2, … Their pods' addresses are local traffic.
func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	return setUp(t, setup{nodes: nodes, config: clusterCIDR()})
}

func setUp(t *testing.T, setup setup) *cluster {
	t.Helper()
	c := &cluster{t: t, fabric: fabrictest.New(t), setup: setup}
	objects := model.Change{Nodes: map[string]*model.Node{}}
	for number := range setup.nodes {
		added := c.addNode(fmt.Sprintf("node-%d", number+1))
		objects.Nodes[added.Name] = added.object()
	}
	c.apply(objects)
	return c
}

func (c *cluster) addNode(name string) *node {
	c.t.Helper()
	add := c.fabric.AddNode
	if c.setup.bridged {
		add = c.fabric.AddBridgeNode
	}
	machine, err := add(name)
	if err != nil {
		c.t.Fatal(err)
	}
	added := &node{Node: machine}
	options := nft.Options{Owned: !c.setup.notOwned}
	err = machine.Do(func() (err error) {
		if added.conn, err = nft.Dial(options); err == nil {
			added.flows, err = conntrack.Dial()
		}
		if err == nil {
			added.routes, err = interfaces.OpenRoutes()
		}
		return err
	})
	if err != nil {
		c.t.Fatalf("dial nftables and conntrack on %s: %v", name, err)
	}
	c.t.Cleanup(func() {
		added.conn.Close()
		added.routes.Close()
		if err := added.flows.Close(); err != nil {
			c.t.Errorf("leave conntrack of %s: %v", name, err)
		}
	})
	c.nodes = append(c.nodes, added)
	added.local = c.interfaceAddrs(added)
	c.restart(added)
	return added
}

// object returns the Node object, as the cluster knows it.
func (n *node) object() *model.Node {
	ipv4, ipv6 := n.PodCIDRs()
	return &model.Node{
		Name:      n.Name,
		Labels:    map[string]string{string(policy.Zone): "zone-of-" + n.Name, string(policy.Hostname): n.Name},
		Addresses: []netip.Addr{n.IPv4, n.IPv6},
		PodCIDRs:  []netip.Prefix{ipv4, ipv6},
	}
}

// restart puts a new proxy on a node that knows nothing but the cluster and finds the kernel as it is.
func (c *cluster) restart(n *node) {
	n.owners = serviceindex.New(conntrackgc.StaleDialWindow)
	reconciler := conntrackgc.NewReconciler(conntrack.NewDumpScheduler(onlyUDP{n.flows}, nil), n.owners, n.routes.IsLocal)
	readers := append([]selection.Handler{concurrentFlows{n.owners, c.t, reconciler}}, n.readers...)
	n.proxy = syncer.New(n.Name, c.setup.config, n.conn, readers...)
	n.proxy.Apply(c.everything.Merge(model.Change{LocalAddrs: n.local}))
}

// apply applies a change to every proxy, and waits until all kernels have it.
func (c *cluster) apply(change model.Change) {
	c.t.Helper()
	c.everything = c.everything.Merge(change)
	for _, n := range c.nodes {
		n.proxy.Apply(change)
		c.sync(n)
	}
}

func (c *cluster) sync(n *node) {
	c.t.Helper()
	report, err := n.proxy.Sync(c.t.Context())
	if err := errors.Join(err, report.CleanupErr); err != nil {
		c.t.Fatalf("sync of %s: %v", n.Name, err)
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

// addHost adds a machine outside the cluster that reaches everything the cluster serves through one node. The other
// nodes answer it through that node too: without masquerading, an answer that went another way would reach the host
// untranslated.
func (c *cluster) addHost(name string, via *node) *fabric.Namespace {
	c.t.Helper()
	host, err := c.fabric.AddHost(name, via.Node)
	for _, prefix := range servedPrefixes {
		err = errors.Join(err, host.RouteVia(prefix, via.Namespace))
	}
	for _, other := range c.nodes {
		for _, addr := range []netip.Addr{host.IPv4, host.IPv6} {
			if other != via {
				err = errors.Join(err, other.RouteVia(single(addr), via.Namespace))
			}
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return host.Namespace
}

// serveOn starts a server of a node's own, such as a daemon in the host network.
func (c *cluster) serveOn(n *fabric.Namespace, port uint16, addrs ...netip.Addr) {
	c.t.Helper()
	if _, err := n.Serve(port, addrs...); err != nil {
		c.t.Fatal(err)
	}
}
