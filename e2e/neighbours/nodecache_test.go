package neighbours_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// dnsApp is the Service of cluster DNS, on the port of all Services here.
var dnsApp = app{"dns", 20, "Cluster", onlyNear}

// nodeCacheLink is the link with the addresses on which the cache listens.
const nodeCacheLink = "nodelocaldns"

// dnsNetworks are the protocols of DNS.
var dnsNetworks = []string{"tcp", "udp"}

// notrackRules returns the rules of NodeLocal DNSCache for one address. The program itself is not available here; the rules
// are those of its source (cmd/node-cache/app/cache_app.go in kubernetes/dns 1.26.7).
func notrackRules(addr netip.Addr, network string) [][]string {
	to := []string{"-p", network, "-d", addr.String(), "--dport", fmt.Sprint(servicePort), "-j"}
	from := []string{"-p", network, "-s", addr.String(), "--sport", fmt.Sprint(servicePort), "-j"}
	rule := func(table, chain string, match []string, target string) []string {
		return append(append([]string{table, chain}, match...), target)
	}
	return [][]string{
		rule("raw", "PREROUTING", to, "NOTRACK"), rule("filter", "INPUT", to, "ACCEPT"), rule("raw", "OUTPUT", from, "NOTRACK"),
		rule("filter", "OUTPUT", from, "ACCEPT"), rule("raw", "OUTPUT", to, "NOTRACK"),
	}
}

// nodeCacheRules inserts or deletes the rules of a node's DNS cache.
func (m *machine) nodeCacheRules(operation string) {
	m.testbed.t.Helper()
	for _, addr := range dnsApp.clusterIPs() {
		program := "iptables"
		if addr.Is6() {
			program = "ip6tables"
		}
		for _, network := range dnsNetworks {
			for _, rule := range notrackRules(addr, network) {
				m.inDebian().run(program, append([]string{"-w", "-t", rule[0], operation, rule[1]}, rule[2:]...)...)
			}
		}
	}
}

// startNodeCache starts a cache that has the addresses of the Service on its node, as in clusters in which pods query
// those addresses.
func (m *machine) startNodeCache() {
	t := m.testbed.t
	t.Helper()
	must.Succeed(t, m.Do(func() error {
		// The program adds a dummy link, which not every kernel has.
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: nodeCacheLink}}
		err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(link))
		for _, addr := range dnsApp.clusterIPs() {
			one := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
			err = errors.Join(err, netlink.AddrAdd(link, &netlink.Addr{IPNet: one}))
		}
		return err
	}))
	m.nodeCacheRules("-I")
	server, err := m.Serve(servicePort, dnsApp.clusterIPs()...)
	must.Succeed(t, err)
	m.listener = server
}

// stopNodeCache removes everything that startNodeCache added.
func (m *machine) stopNodeCache() {
	t := m.testbed.t
	t.Helper()
	must.Succeed(t, m.listener.Close())
	m.nodeCacheRules("-D")
	must.Succeed(t, m.Do(func() error {
		return netlink.LinkDel(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: nodeCacheLink}})
	}))
}

// dnsChecks returns checks of connections from a pod and the node to cluster DNS.
func (tb *testbed) dnsChecks(servers []string) []check {
	var checks []check
	for _, to := range addrPorts(servicePort, dnsApp.clusterIPs()...) {
		checks = append(checks, check{tb.client.Namespace, to, cell{servers, client}},
			check{tb.nodes[0].Namespace, to, cell{servers, node}})
	}
	return checks
}

// TestNodeLocalDNSCache checks that the cache serves the ClusterIP, and that conntrack has no entries of these queries.
func TestNodeLocalDNSCache(t *testing.T) {
	t.Parallel()
	testNeighbour(t, neighbour{
		start: (*machine).startNodeCache,
		update: func(m *machine) {
			m.nodeCacheRules("-D")
			m.nodeCacheRules("-I")
		},
		restart: func(m *machine) {
			m.stopNodeCache()
			m.startNodeCache()
		},
		check: func(tb *testbed) {
			tb.t.Helper()
			byCache := []string{tb.nodes[0].Name}
			tb.expectOver(dnsNetworks, "at the cache", tb.dnsChecks(byCache)...)
			if entries := tb.nodes[0].tracked(dnsApp.clusterIPs()...); len(entries) > 0 {
				tb.t.Errorf("conntrack has entries of queries to the cache: %v, want none", entries)
			}
		},
	})
}

// TestTheServiceServesDNSBeforeAndAfterANodeCache checks that the Service serves cluster DNS before the cache starts
// and after it stops.
func TestTheServiceServesDNSBeforeAndAfterANodeCache(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	first := tb.nodes[0]
	first.startProxy()
	tb.expectOver(dnsNetworks, "before the cache", tb.dnsChecks(onlyNear)...)
	first.startNodeCache()
	tb.expectOver(dnsNetworks, "at the cache", tb.dnsChecks([]string{first.Name})...)
	first.stopNodeCache()
	tb.expectOver(dnsNetworks, "after the cache", tb.dnsChecks(onlyNear)...)
}

// tracked returns the conntrack entries of connections to which the given addresses themselves reply.
func (m *machine) tracked(addrs ...netip.Addr) (found []string) {
	m.testbed.t.Helper()
	must.Succeed(m.testbed.t, m.Do(func() error {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				return err
			}
			for _, flow := range flows {
				if from, _ := netip.AddrFromSlice(flow.Reverse.SrcIP); slices.Contains(addrs, from.Unmap()) {
					found = append(found, flow.String())
				}
			}
		}
		return nil
	}))
	return found
}
