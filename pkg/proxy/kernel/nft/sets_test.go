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
	at := addressesOf(family)
	frontend := ruleset.Tuple{Addr: at.service, Proto: model.TCP, Port: 80}
	balanced := ruleset.Tuple{Addr: at.balancer, Proto: model.TCP, Port: 443}
	nodePort := ruleset.Tuple{Proto: model.UDP, Port: 30080}
	class := uint32(ruleset.BalanceClass(3))
	split := uint32(ruleset.SplitClass(1, 3))
	one := func(set ruleset.Set, key ruleset.Tuple) filled { return filled{set, []ruleset.Element{{Key: key}}} }
	says := func(set ruleset.Set, key, value ruleset.Tuple) filled {
		return filled{set, []ruleset.Element{{Key: key, Value: value}}}
	}
	endpoint := ruleset.Tuple{Addr: at.endpoint, Port: 8080}
	return []filled{
		commented(says(ruleset.Services, frontend, ruleset.Tuple{Number: class}), "shop/web:http"),
		commented(says(ruleset.NodePorts, nodePort, ruleset.Tuple{Number: split}), "shop/dns"),
		{ruleset.Dispatch, []ruleset.Element{
			{Key: ruleset.Tuple{Number: split}, Verdict: verdictOf(ruleset.Jump, "lb-3-local-1").Verdict},
			{Key: ruleset.Tuple{Number: class}, Verdict: verdictOf(ruleset.Jump, "lb-3").Verdict},
			{Key: ruleset.Tuple{Number: stickyClass}, Verdict: verdictOf(ruleset.Jump, "sticky-7").Verdict},
			{Key: ruleset.Tuple{Number: uint32(ruleset.RefuseClass)}, Verdict: verdictOf(ruleset.Goto, "refuse").Verdict},
			{Key: ruleset.Tuple{Number: uint32(ruleset.DropClass)}, Verdict: verdictOf(ruleset.Drop, "").Verdict},
		}},
		says(ruleset.Endpoints, numbered(frontend, ruleset.ClusterSlot+2), endpoint),
		says(ruleset.NodePortEndpoints, numbered(nodePort, ruleset.LocalSlot), endpoint),
		says(ruleset.Sticky, frontend, ruleset.Tuple{Number: class}),
		says(ruleset.NodePortSticky, nodePort, ruleset.Tuple{Number: split}),
		{ruleset.StickyDispatch, []ruleset.Element{{Key: ruleset.Tuple{Number: class}, Verdict: verdictOf(ruleset.Jump, "lb-3").Verdict}}},
		says(ruleset.StickyPorts, frontend, ruleset.Tuple{Number: stickyPort}),
		says(ruleset.NodePortStickyPorts, nodePort, ruleset.Tuple{Number: stickyPort}),
		says(ruleset.StickyOutside, frontend, ruleset.Tuple{Number: stickyPort}),
		says(ruleset.NodePortStickyOutside, nodePort, ruleset.Tuple{Number: stickyPort}),
		says(ruleset.StickyEndpoints, numbered(frontend, ruleset.ClusterSlot+2), ruleset.Tuple{Number: stickyEndpoint}),
		says(ruleset.NodePortStickyEndpoints, numbered(nodePort, ruleset.LocalSlot), ruleset.Tuple{Number: stickyEndpoint}),
		says(ruleset.Numbered, ruleset.Tuple{Proto: model.TCP, Number: stickyEndpoint}, endpoint),
		says(ruleset.NumberedCollided, ruleset.Tuple{Proto: model.SCTP, Number: stickyEndpoint}, endpoint),
		one(ruleset.ExternalCluster, balanced),
		one(ruleset.NodePortCluster, nodePort),
		one(ruleset.ExternalLocal, balanced),
		one(ruleset.NodePortLocal, nodePort),
		says(ruleset.Restricted, balanced, ruleset.Tuple{Number: listNumber}),
		one(ruleset.Sources, rangeElement(at.allowedRange).Key),
		one(ruleset.ClusterIPs, ruleset.Tuple{Addr: at.service}),
		one(ruleset.NodePortIPs, ruleset.Tuple{Addr: at.node}),
		one(ruleset.Hairpin, ruleset.Tuple{Addr: at.endpoint, Source: at.endpoint, Proto: model.SCTP, Port: 8080}),
		says(affinity, ruleset.Tuple{Number: stickyPort, Addr: at.client}, ruleset.Tuple{Number: stickyEndpoint}),
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
