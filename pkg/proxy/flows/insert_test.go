//go:build linux

package flows

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// number is the kernel's number of a family (NFPROTO_*).
func number(family model.Family) byte {
	if family == model.IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

// insert puts entries into the table as packets would: n flows with source ports from the given one on.
func (g *ground) insert(protocol model.Protocol, client netip.Addr, from, n int, dialled, answerer netip.AddrPort) {
	g.t.Helper()
	for port := from; port < from+n; port++ {
		if err := g.tryInsert(protocol, netip.AddrPortFrom(client, uint16(port)), dialled, answerer); err != nil {
			g.t.Fatalf("inserting a conntrack entry: %v", err)
		}
	}
}

func (g *ground) tryInsert(protocol model.Protocol, client, dialled, answerer netip.AddrPort) error {
	flow := &netlink.ConntrackFlow{FamilyType: number(g.family), TimeOut: 3600}
	flow.Forward = tupleOf(protocol, client, dialled)
	flow.Reverse = tupleOf(protocol, answerer, client)
	if protocol == model.TCP {
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: 3}
	}
	return g.handle.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(number(g.family)), flow)
}

func tupleOf(protocol model.Protocol, source, destination netip.AddrPort) netlink.IPTuple {
	return netlink.IPTuple{
		Protocol: uint8(protocol),
		SrcIP:    source.Addr().AsSlice(), SrcPort: source.Port(), DstIP: destination.Addr().AsSlice(), DstPort: destination.Port(),
	}
}

// count counts the entries of a protocol, with the library's own reader.
func (g *ground) count(protocol model.Protocol) int {
	g.t.Helper()
	flows, err := g.handle.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(number(g.family)))
	if err != nil {
		g.t.Fatalf("listing conntrack: %v", err)
	}
	n := 0
	for _, flow := range flows {
		if flow.Forward.Protocol == uint8(protocol) {
			n++
		}
	}
	return n
}
