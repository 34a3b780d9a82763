// Package packets tests the tables with real connections: small networks of namespaces, the proxy's own code on every
// node, and servers that report the client address that they see. It needs root.
//
// To test another kind of frontend or property, add a file; objects_test.go and paths_test.go have the Services and the
// ways to dial them.
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
	// state is the state of the cluster, for proxies that start later.
	state model.Change
}

// setup configures a new cluster.
type setup struct {
	nodes  int
	config ruleset.Config
	// If bridged is set, every node has its pods on one bridge.
	bridged bool
	// If notOwned is set, the proxy does not own its tables, so that nft can change them, too.
	notOwned bool
}

// node is a node with its proxy.
type node struct {
	*fabric.Node
	conn         *nft.Conn
	flows        *conntrack.Conn
	routes       *interfaces.Routes
	serviceIndex *serviceindex.Index
	proxy        *syncer.Proxy
	// local are the addresses of its interfaces, as last reported to its proxy.
	local []netip.Addr
	// handlers are the decision handlers of its proxy, in addition to the one that deletes stale flows.
	handlers []selection.Handler
}

// inlineCleanup deletes stale UDP flows before OnSynced returns, so that a test need not wait.
type inlineCleanup struct {
	*serviceindex.Index
	t          *testing.T
	reconciler *conntrackgc.Reconciler
}

func (f inlineCleanup) OnSynced(sync selection.SyncState) {
	f.Index.OnSynced(sync)
	if _, err := f.reconciler.CleanOnce(f.t.Context()); err != nil {
		f.t.Errorf("clean up flows: %v", err)
	}
}

// onlyUDP is a conntrack table without the other protocols. Tests of connection attempts run a reconciler for those.
type onlyUDP struct{ conntrack.Table }

func (o onlyUDP) Dump(ctx context.Context, filter conntrack.Filter, each func(*conntrack.Entry) bool) (time.Duration, error) {
	return o.Table.Dump(ctx, filter, func(e *conntrack.Entry) bool { return e.Protocol != model.UDP || each(e) })
}

// pod is a serving pod and its endpoint.
type pod struct {
	*fabric.Pod
	zone string
}

// clusterCIDR returns the most common configuration: pods are recognized by their addresses, and node ports are served
// on the node's own addresses.
func clusterCIDR() ruleset.Config {
	return ruleset.Config{
		Families:     model.Families,
		LocalTraffic: ruleset.LocalTraffic{Prefixes: []netip.Prefix{fabric.PodsIPv4, fabric.PodsIPv6}},
		NodePorts:    model.NodePortAddresses{Primary: true},
	}
}

// withoutDetector returns a configuration without local traffic detection.
func withoutDetector() ruleset.Config {
	config := clusterCIDR()
	config.LocalTraffic = ruleset.LocalTraffic{}
	return config
}

// newCluster returns a cluster with nodes node-1, node-2, … The addresses of their pods are local traffic.
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
		c.t.Fatalf("open nftables and conntrack on %s: %v", name, err)
	}
	c.t.Cleanup(func() {
		added.conn.Close()
		added.routes.Close()
		if err := added.flows.Close(); err != nil {
			c.t.Errorf("close conntrack connection of %s: %v", name, err)
		}
	})
	c.nodes = append(c.nodes, added)
	added.local = c.interfaceAddrs(added)
	c.restart(added)
	return added
}

// object returns the node's Node object.
func (n *node) object() *model.Node {
	ipv4, ipv6 := n.PodCIDRs()
	return &model.Node{
		Name:      n.Name,
		Labels:    map[string]string{string(policy.Zone): "zone-of-" + n.Name, string(policy.Hostname): n.Name},
		Addresses: []netip.Addr{n.IPv4, n.IPv6},
		PodCIDRs:  []netip.Prefix{ipv4, ipv6},
	}
}

// restart starts a new proxy on a node. It has the cluster's objects, and the kernel's state stays as it is.
func (c *cluster) restart(n *node) {
	n.serviceIndex = serviceindex.New(conntrackgc.StaleEntryWindow)
	reconciler := conntrackgc.NewReconciler(conntrack.NewDumpScheduler(onlyUDP{n.flows}, nil), n.serviceIndex, n.routes.IsLocal)
	handlers := append([]selection.Handler{inlineCleanup{n.serviceIndex, c.t, reconciler}}, n.handlers...)
	n.proxy = syncer.New(n.Name, c.setup.config, n.conn, handlers...)
	n.proxy.Apply(c.state.Merge(model.Change{LocalAddrs: n.local}))
}

// apply applies a change to every proxy, and waits until it is in all kernels.
func (c *cluster) apply(change model.Change) {
	c.t.Helper()
	c.state = c.state.Merge(change)
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

// addPod adds a pod that does not serve.
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

// addHost adds a machine outside the cluster that reaches all Services through one node. The other nodes reply to it
// through that node, too: without masquerading, a reply on another path would arrive untranslated.
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

// serveOn starts a server in a node's own network, such as a daemon in the host network.
func (c *cluster) serveOn(n *fabric.Namespace, port uint16, addrs ...netip.Addr) {
	c.t.Helper()
	if _, err := n.Serve(port, addrs...); err != nil {
		c.t.Fatal(err)
	}
}
