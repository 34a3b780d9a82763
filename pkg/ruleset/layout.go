package ruleset

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Config is what the node's administrator chose about the tables.
type Config struct {
	// Families are the families that get a table.
	Families []model.Family
	// LocalTraffic are the prefixes of this cluster's pods, at most one a family: kube-proxy's ClusterCIDR detector. A
	// connection to a ClusterIP from anywhere else is masqueraded, so that its answers come back this way. Without a
	// prefix for a family nothing of that family is masqueraded, but hairpin connections.
	LocalTraffic []netip.Prefix
}

func (c Config) localTraffic(family model.Family) (netip.Prefix, bool) {
	for _, prefix := range c.LocalTraffic {
		if model.FamilyOf(prefix.Addr()) == family {
			return prefix, true
		}
	}
	return netip.Prefix{}, false
}

// Names of the chains that every table has. None is a keyword of nft, which could not list it then.
const (
	servicesChain = "services"
	balanceChain  = "balance"
	learnChain    = "learn"
	refuseChain   = "refuse"
)

var (
	// dialled is the frontend as the first packet of a connection names it.
	dialled = []Field{DestinationAddr, L4Proto, DestinationPort}
	// originallyDialled is the same frontend as conntrack remembers it after the DNAT.
	originallyDialled = []Field{OriginalDestinationAddr, L4Proto, OriginalDestinationPort}
)

// StaticChains returns the chains that a family's table has whatever the Services are.
//
// All base chains are of type nat: they see the first packet of each flow, so that established ones cost nothing. Where a
// packet goes:
//
//	nat-prerouting, nat-output    services ─┬─ sticky vmap:   sticky-… finds the client's endpoint, or returns
//	                                        ├─ services map:  class of the frontend, dispatched to lb-N, refuse or drop
//	                                        │                 lb-N draws one of N slots, balance looks its endpoint up
//	                                        ├─ a class or slot, and yet no endpoint: the tables changed under the packet, drop it
//	                                        └─ a ClusterIP on a port that no Service defines: refuse
//	nat-postrouting, nat-input    learn ──────  learn vmap:    learn-… remembers the client's endpoint
//	nat-postrouting               give the priority back that carried the slot
//	nat-postrouting               masquerade hairpin connections, and those to a ClusterIP from outside the pods' prefix
func StaticChains(family model.Family, config Config) []Chain {
	return []Chain{
		{Name: refuseChain, Hook: NoHook, Rules: refuseRules()},
		{Name: balanceChain, Hook: NoHook, Rules: []Rule{{DNAT{Key: append(slices.Clone(dialled), Priority), Map: Endpoints}}}},
		{Name: servicesChain, Hook: NoHook, Rules: []Rule{
			{VerdictOf{Key: dialled, Map: Sticky}},
			{SetPriority{Key: dialled, Map: Services}},
			{VerdictOf{Key: []Field{Priority}, Map: Dispatch}},
			{InSet{Key: []Field{DestinationAddr}, Set: ClusterIPs}, PriorityBetween{firstSlot, lastClass}, Do{Verdict{Kind: Drop}}},
			{InSet{Key: []Field{DestinationAddr}, Set: ClusterIPs}, Do{Verdict{Kind: Goto, Chain: refuseChain}}},
		}},
		{Name: learnChain, Hook: NoHook, Rules: learnRules()},
		{Name: "nat-prerouting", Hook: Prerouting, Priority: PriorityDNAT, Rules: []Rule{jump(servicesChain)}},
		{Name: "nat-output", Hook: Output, Priority: PriorityDNAT, Rules: []Rule{jump(servicesChain)}},
		{Name: "nat-postrouting", Hook: Postrouting, Priority: PrioritySNAT, Rules: append(
			[]Rule{{PriorityBetween{firstSlot, lastSlot}, ResetPriority{}}, jump(learnChain)}, masqueradeRules(family, config)...)},
		{Name: "nat-input", Hook: Input, Priority: PrioritySNAT, Rules: []Rule{jump(learnChain)}},
	}
}

// refuseRules answer TCP with a reset, and everything else with the ICMP that kube-proxy sends for TCP too. The kernel bounds
// ICMP errors to six in a row and then one a second for each receiver (icmp_ratelimit), and TCP over IPv6 overlooks one that
// comes while connect() is under way: either makes a client wait for its next SYN, a second later. A reset does neither.
func refuseRules() []Rule {
	return []Rule{
		{ProtocolIs{model.TCP}, Reject{TCPReset: true}},
		{Reject{}},
	}
}

func jump(chain string) Rule { return Rule{Do{Verdict{Kind: Jump, Chain: chain}}} }

// learnRules has a rule for each protocol because nft knows the type of `ct original proto-dst` only after a protocol match.
func learnRules() []Rule {
	var rules []Rule
	for _, protocol := range model.Protocols {
		rules = append(rules, Rule{ProtocolIs{protocol}, VerdictOf{Key: originallyDialled, Map: Learn}})
	}
	return rules
}

func masqueradeRules(family model.Family, config Config) []Rule {
	rules := []Rule{{
		HasDestinationNAT{},
		InSet{Key: []Field{SourceAddr, DestinationAddr, L4Proto, DestinationPort}, Set: Hairpin},
		Masquerade{},
	}}
	if prefix, ok := config.localTraffic(family); ok {
		rules = append(rules, Rule{
			InSet{Key: []Field{OriginalDestinationAddr}, Set: ClusterIPs},
			NotInPrefix{Field: OriginalSourceAddr, Prefix: prefix},
			Masquerade{},
		})
	}
	return rules
}

// dispatchOf returns what the dispatch map says of a class.
func dispatchOf(class Class) Verdict {
	switch class {
	case DropClass:
		return Verdict{Kind: Drop}
	case RefuseClass:
		return Verdict{Kind: Goto, Chain: refuseChain}
	default:
		return Verdict{Kind: Jump, Chain: drawChainName(class.Slots())}
	}
}

func drawChainName(slots int) string { return "lb-" + strconv.Itoa(slots) }

// drawChain draws a slot for every Service port that has so many: `numgen … mod N` has N fixed in the rule. It looks nothing
// up itself, because a rule that is added for a map makes the kernel walk the whole map (nf_tables_bind_set): with 100,000
// endpoints the first Service of a new size would cost 5 ms, and so would the last.
func drawChain(slots int) Chain {
	return Chain{Name: drawChainName(slots), Hook: NoHook, Rules: []Rule{{
		DrawSlot{Slots: slots, First: firstSlot},
		Do{Verdict{Kind: Goto, Chain: balanceChain}},
	}}}
}
