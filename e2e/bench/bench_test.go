// Package bench measures the whole path from an event to the kernel, and then the cost of the tables for a connection,
// in its own network namespaces. It needs root.
//
// Times of one machine say little about another machine, and less on a shared one. Comparable results are printed as a
// ratio to the floor: the time that the kernel needs for the same bytes if they are already encoded, or for the same
// connection without a Service.
//
// To add an event, see events_test.go; the tables of results are in table_test.go.
package bench_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// config is the most common configuration: pods are recognized by their addresses, and node ports are served on the
// node's own addresses.
var config = ruleset.Config{
	Families:     model.Families,
	LocalTraffic: ruleset.LocalTraffic{Prefixes: []netip.Prefix{fabric.PodsIPv4, fabric.PodsIPv6}},
	NodePorts:    model.NodePortAddresses{Primary: true},
}

// ownNode is the name of the node on which the proxy is measured.
const ownNode = "node"

// machine is a node with its nftables tables and its conntrack table.
type machine struct {
	*fabric.Node
	tables *nft.Conn
	conn   *conntrack.Conn
	routes *interfaces.Routes
}

// newMachine returns a node with empty tables in its own network.
func newMachine(b *testing.B) *machine {
	b.Helper()
	return addMachine(b, fabrictest.New(b), ownNode)
}

func addMachine(b *testing.B, network *fabric.Fabric, name string) *machine {
	b.Helper()
	node, err := network.AddNode(name)
	if err != nil {
		b.Fatal(err)
	}
	m := &machine{Node: node}
	err = node.Do(func() (err error) {
		if m.tables, err = nft.Dial(nft.Options{Owned: true}); err == nil {
			m.conn, err = conntrack.Dial()
		}
		if err == nil {
			m.routes, err = interfaces.OpenRoutes()
		}
		return err
	})
	if err != nil {
		b.Fatalf("open nftables and conntrack on %s: %v", name, err)
	}
	b.Cleanup(func() {
		m.routes.Close()
		if err := errors.Join(m.tables.Close(), m.conn.Close()); err != nil {
			b.Errorf("close the sockets on %s: %v", name, err)
		}
	})
	return m
}

// proxyOf returns a proxy of the machine that has its own node and the cluster, and has not synced yet.
func (m *machine) proxyOf(cluster model.Change, handlers ...selection.Handler) *syncer.Proxy {
	p := syncer.New(m.Name, config, m.tables, handlers...)
	p.Apply(cluster)
	p.Apply(m.nodeChange())
	return p
}

// nodeChange returns the change that adds the machine's Node.
func (m *machine) nodeChange() model.Change {
	ipv4, ipv6 := m.PodCIDRs()
	addrs := []netip.Addr{m.IPv4, m.IPv6}
	node := &model.Node{Name: m.Name, Addresses: addrs, PodCIDRs: []netip.Prefix{ipv4, ipv6}}
	return model.Change{Nodes: map[string]*model.Node{m.Name: node}, LocalAddrs: addrs}
}

// sync runs a full sync.
func sync(b *testing.B, p *syncer.Proxy) syncer.Report {
	b.Helper()
	report, err := p.Sync(b.Context())
	if err := errors.Join(err, report.CleanupErr); err != nil {
		b.Fatal(err)
	}
	return report
}

func median(times []time.Duration) time.Duration {
	return percentile(slices.Sorted(slices.Values(times)), 50)
}

func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}
