//go:build linux

package nft

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// filled is a set with elements.
type filled struct {
	set      ruleset.Set
	elements []ruleset.Element
}

// stickyClass is the class of a frontend with affinity.
const stickyClass uint32 = 0xf70e1007

// everySet holds a set of every kind, each hash table with a single element so that there is one way to list it.
func everySet(family model.Family) []filled {
	addrs := addressesOf(family)
	frontend := ruleset.Tuple{Addr: addrs.service, Proto: model.TCP, Port: 80}
	balanced := ruleset.Tuple{Addr: addrs.balancer, Proto: model.TCP, Port: 443}
	nodePort := ruleset.Tuple{Proto: model.UDP, Port: 30080}
	class := uint32(ruleset.BalanceClass(3))
	split := uint32(ruleset.SplitClass(1, 3))
	keyOnly := func(set ruleset.Set, key ruleset.Tuple) filled { return filled{set, []ruleset.Element{{Key: key}}} }
	mapping := func(set ruleset.Set, key, value ruleset.Tuple) filled {
		return filled{set, []ruleset.Element{{Key: key, Value: value}}}
	}
	endpoint := ruleset.Tuple{Addr: addrs.endpoint, Port: 8080}
	return []filled{
		commented(mapping(ruleset.Services, frontend, ruleset.Tuple{Number: class}), "shop/web:http"),
		commented(mapping(ruleset.NodePorts, nodePort, ruleset.Tuple{Number: split}), "shop/dns"),
		{ruleset.Dispatch, []ruleset.Element{
			{Key: ruleset.Tuple{Number: split}, Verdict: verdictOf(ruleset.Jump, "lb-3-local-1").Verdict},
			{Key: ruleset.Tuple{Number: class}, Verdict: verdictOf(ruleset.Jump, "lb-3").Verdict},
			{Key: ruleset.Tuple{Number: stickyClass}, Verdict: verdictOf(ruleset.Jump, "sticky-7").Verdict},
			{Key: ruleset.Tuple{Number: uint32(ruleset.RefuseClass)}, Verdict: verdictOf(ruleset.Goto, "refuse").Verdict},
			{Key: ruleset.Tuple{Number: uint32(ruleset.DropClass)}, Verdict: verdictOf(ruleset.Drop, "").Verdict},
		}},
		mapping(ruleset.Endpoints, numbered(frontend, ruleset.ClusterSlot+2), endpoint),
		mapping(ruleset.NodePortEndpoints, numbered(nodePort, ruleset.LocalSlot), endpoint),
		mapping(ruleset.Sticky, frontend, ruleset.Tuple{Number: class}),
		mapping(ruleset.NodePortSticky, nodePort, ruleset.Tuple{Number: split}),
		{ruleset.StickyDispatch, []ruleset.Element{{Key: ruleset.Tuple{Number: class}, Verdict: verdictOf(ruleset.Jump, "lb-3").Verdict}}},
		mapping(ruleset.StickyPorts, frontend, ruleset.Tuple{Number: stickyPort}),
		mapping(ruleset.NodePortStickyPorts, nodePort, ruleset.Tuple{Number: stickyPort}),
		mapping(ruleset.StickyOutside, frontend, ruleset.Tuple{Number: stickyPort}),
		mapping(ruleset.NodePortStickyOutside, nodePort, ruleset.Tuple{Number: stickyPort}),
		mapping(ruleset.StickyEndpoints, numbered(frontend, ruleset.ClusterSlot+2), ruleset.Tuple{Number: stickyEndpoint}),
		mapping(ruleset.NodePortStickyEndpoints, numbered(nodePort, ruleset.LocalSlot), ruleset.Tuple{Number: stickyEndpoint}),
		mapping(ruleset.Numbered, ruleset.Tuple{Proto: model.TCP, Number: stickyEndpoint}, endpoint),
		mapping(ruleset.NumberedCollided, ruleset.Tuple{Proto: model.SCTP, Number: stickyEndpoint}, endpoint),
		keyOnly(ruleset.ExternalCluster, balanced),
		keyOnly(ruleset.NodePortCluster, nodePort),
		keyOnly(ruleset.ExternalLocal, balanced),
		keyOnly(ruleset.NodePortLocal, nodePort),
		mapping(ruleset.Restricted, balanced, ruleset.Tuple{Number: listNumber}),
		keyOnly(ruleset.Sources, rangeElement(addrs.allowedRange).Key),
		keyOnly(ruleset.ClusterIPs, ruleset.Tuple{Addr: addrs.service}),
		keyOnly(ruleset.NodePortIPs, ruleset.Tuple{Addr: addrs.node}),
		keyOnly(ruleset.Hairpin, ruleset.Tuple{Addr: addrs.endpoint, Source: addrs.endpoint, Proto: model.SCTP, Port: 8080}),
		mapping(affinity, ruleset.Tuple{Number: stickyPort, Addr: addrs.client}, ruleset.Tuple{Number: stickyEndpoint}),
	}
}

func commented(f filled, comment string) filled {
	f.elements[0].Comment = comment
	return f
}

func numbered(tuple ruleset.Tuple, number uint32) ruleset.Tuple {
	tuple.Number = number
	return tuple
}

// listNumber is the number of the list of source ranges.
const listNumber uint32 = 0xf5000001

// rangeElement is the element that allows a prefix.
func rangeElement(prefix netip.Prefix) ruleset.Element {
	last := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(last); bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	end, _ := netip.AddrFromSlice(last)
	return ruleset.Element{Key: ruleset.Tuple{Number: listNumber, Addr: prefix.Addr(), Source: end}}
}

// elementsIn returns the elements of one of the sets in everySet.
func elementsIn(family model.Family, set ruleset.Set) []ruleset.Element {
	sets := everySet(family)
	return sets[slices.IndexFunc(sets, func(f filled) bool { return f.set.Name == set.Name })].elements
}
