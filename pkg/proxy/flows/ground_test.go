//go:build linux

package flows

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// site is what a ground has in one family.
type site struct {
	family model.Family
	// service is a frontend's address; ported and portless are the node's addresses, and only the first serves node ports;
	// a and b are endpoints; elsewhere is no address of the ground's.
	service, ported, portless, a, b, elsewhere netip.Addr
}

var sites = []site{
	{
		family:  model.IPv4,
		service: netip.MustParseAddr("10.96.0.10"), ported: netip.MustParseAddr("172.30.0.1"), portless: netip.MustParseAddr("192.168.0.1"),
		a: endpointA.Addr(), b: endpointB.Addr(), elsewhere: netip.MustParseAddr("172.30.0.201"),
	},
	{
		family:  model.IPv6,
		service: netip.MustParseAddr("fd00:96::a"), ported: netip.MustParseAddr("fd00:30::1"), portless: netip.MustParseAddr("fd00:192::1"),
		a: endpoint6A.Addr(), b: endpoint6B.Addr(), elsewhere: netip.MustParseAddr("fd00:30::c9"),
	},
}

const (
	servicePort  = 53
	nodePort     = 30053
	endpointPort = 8053
)

func (s site) scope() selection.Scope {
	return selection.Scope{NodePorts: []netip.Addr{s.ported}}
}

// flows are those of a frontend that the given endpoints may answer.
func (s site) flows(at netip.Addr, port uint16, endpoints ...netip.Addr) []selection.Flows {
	of := selection.Flows{Frontend: model.Frontend{Addr: at, Protocol: model.UDP, Port: port}}
	for _, endpoint := range endpoints {
		of.Inside = append(of.Inside, netip.AddrPortFrom(endpoint, endpointPort))
	}
	of.Outside = of.Inside
	return list(of)
}

// ground is a namespace whose loopback has all the site's addresses. A process of UDP and one of TCP on each endpoint
// answer with the endpoint's address.
type ground struct {
	site
	t         *testing.T
	namespace *netns.Namespace
	conn      *conntrack.Conn
	routes    *interfaces.Routes
	handle    *netlink.Handle // an independent reader, and writer, of the table
}

func newGround(t *testing.T, s site) *ground {
	t.Helper()
	g := &ground{site: s, t: t, namespace: netns.New(t)}
	g.namespace.Do(func() {
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range []netip.Addr{s.service, s.ported, s.portless, s.a, s.b} {
			network := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
			if err := netlink.AddrAdd(loopback, &netlink.Addr{IPNet: network, Flags: unix.IFA_F_NODAD}); err != nil {
				t.Fatal(err)
			}
		}
		g.answerOn(s.a)
		g.answerOn(s.b)
		if g.conn, err = conntrack.Dial(); err != nil {
			t.Fatal(err)
		}
		if g.routes, err = interfaces.OpenRoutes(); err != nil {
			t.Fatal(err)
		}
		if g.handle, err = netlink.NewHandle(unix.NETLINK_NETFILTER); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		g.handle.Close()
		g.routes.Close()
		if err := g.conn.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	g.rules()
	return g
}

func (g *ground) answerOn(endpoint netip.Addr) {
	at := netip.AddrPortFrom(endpoint, endpointPort)
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		g.t.Fatal(err)
	}
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _, _ = udp.Close(), tcp.Close() })
	go func() {
		buffer := make([]byte, 16)
		for {
			_, from, err := udp.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteToUDPAddrPort([]byte(endpoint.String()), from)
		}
	}()
	go func() {
		connection, err := tcp.Accept()
		if err != nil {
			return
		}
		defer func() { _ = connection.Close() }()
		buffer := make([]byte, 16)
		for {
			if _, err := connection.Read(buffer); err != nil {
				return
			}
			_, _ = connection.Write([]byte(endpoint.String()))
		}
	}()
}

// rules gives the namespace a proxy's rules for locally made packets. Established flows do not meet them. The first
// rule is there because a namespace has no conntrack before a rule asks for it.
func (g *ground) rules(rules ...string) {
	g.t.Helper()
	table, daddr := "ip test", "ip daddr"
	if g.family == model.IPv6 {
		table, daddr = "ip6 test", "ip6 daddr"
	}
	chain := "type nat hook output priority -100\nct state invalid drop\n" + strings.Join(rules, "\n")
	g.namespace.Load(fmt.Sprintf("add table %[1]s\ndelete table %[1]s\ntable %[1]s {\nchain output {\n%[2]s\n}\n}\n",
		table, strings.ReplaceAll(chain, "ADDR", daddr)))
}

// natRule is the rule that sends what is dialled at an address to an endpoint.
func (g *ground) natRule(dialled netip.Addr, port int, endpoint netip.Addr) string {
	return fmt.Sprintf("ADDR %s meta l4proto { tcp, udp } th dport %d dnat to %s", dialled, port, netip.AddrPortFrom(endpoint, endpointPort))
}

// tryForget ends stale flows, and returns how many.
func (g *ground) tryForget(flows []selection.Flows, scope selection.Scope) (ended int, err error) {
	passes, err := forgetIn(g.t.Context(), g.conn, g.routes.IsLocal, flows, scope)
	for _, pass := range passes {
		ended += pass.Ended
	}
	return ended, err
}

func (g *ground) forget(want int, flows []selection.Flows) {
	g.t.Helper()
	ended, err := g.tryForget(flows, g.scope())
	if err != nil {
		g.t.Fatalf("Forget: %v", err)
	}
	if ended != want {
		g.t.Errorf("%d flows were ended, want %d", ended, want)
	}
}

func forEachFamily(t *testing.T, test func(t *testing.T, g *ground)) {
	for _, s := range sites {
		t.Run(s.family.String(), func(t *testing.T) { test(t, newGround(t, s)) })
	}
}
