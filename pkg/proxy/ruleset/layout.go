package ruleset

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Names of the chains that every table has. None is a keyword of nft: nft could not list such a chain.
const (
	servicesChain     = "services"
	nodePortsChain    = "nodeports"
	refuseChain       = "refuse"
	stickyPortChain   = "sticky-port"
	stickyDrawChain   = "sticky-draw"
	numberedChain     = "numbered"
	masqueradeChain   = "masquerading"
	fromNodeChain     = "masquerade-node"
	sourceRangesChain = "source-ranges"
	localhostChain    = "localhost-nodeports"
	// Prefix of the name of a chain that does for node ports what the chain without the prefix does for all other
	// frontends.
	nodePortPrefix = "nodeport-"
)

// TranslatedLabel is the conntrack label of a connection to a frontend for which these tables choose an endpoint. A chain of
// another program that comes before ours may have led it elsewhere: then it has no label, and that program masquerades it
// or does not. A label lasts from hook to hook, which a priority does not, for ip_forward writes another one. A mark
// would not do either, because the CNI's rules may read it.
//
// If the endpoint is what was dialled, the connection has the label and was not translated (`ct status dnat`).
//
// The number is arbitrary. Any other program that labels connections in this network namespace has to use another one.
const TranslatedLabel = 86

// NodePortLabel is the conntrack label that such a connection has, too, if a node port was dialled: a node port has no
// address, so that after the translation nobody could tell it from other frontends with its number.
const NodePortLabel = 87

// ownPriorities is whatever of ours a packet's priority may hold.
var ownPriorities = PriorityBetween{uint32(splitClass), uint32(lastClass)}

var (
	// origTuple is the frontend as the first packet of a connection names it.
	origTuple       = []Field{DestinationAddr, L4Proto, DestinationPort}
	dialledNodePort = []Field{L4Proto, DestinationPort}
	// origTupleConntrack is the same frontend as conntrack remembers it after the DNAT.
	origTupleConntrack        = []Field{OriginalDestinationAddr, L4Proto, OriginalDestinationPort}
	originallyDialledNodePort = []Field{L4Proto, OriginalDestinationPort}
)

// StaticChains returns the chains that a family's table has whatever the Services are.
//
// All base chains are of type nat: they see the first packet of each flow, so that established ones cost nothing.
// Where a packet goes:
//
//	nat-prerouting, nat-output    services ─┬─ restricted map: number of a list; source-ranges: drop who is in none of it
//	                                        ├─ services map:  class of the frontend, dispatched to lb-…, refuse or drop,
//	                                        │                 or to sticky-…, which finds the client's endpoint or draws one
//	                                        ├─ endpoints map: the endpoint in the slot that lb-… drew
//	                                        ├─ a class or slot, and yet no endpoint: the tables changed under the packet, drop it
//	                                        ├─ an address for node ports: nodeports, the same again by protocol and port
//	                                        ├─ a ClusterIP on a port that no Service defines: refuse
//	                                        └─ loopback, with kube-proxy's gate for it: localhost-nodeports, count and refuse
//	nat-postrouting               an address inside a ServiceCIDR that was not translated, nor is this node's: drop
//	nat-postrouting               give the priority back that carried the slot
//	nat-postrouting               masquerading, of what was translated here
func StaticChains(family model.Family, config Config, surroundings NodeState) []Chain {
	outside := config.outside(family)
	chains := []Chain{
		{Name: refuseChain, Hook: NoHook, Rules: refuseRules()},
		{Name: servicesChain, Hook: NoHook, Rules: serviceRules(family, config)},
		{Name: nodePortsChain, Hook: NoHook, Rules: translation(
			dialledNodePort, NodePorts, NodePortEndpoints, SetLabel{NodePortLabel})},
		{Name: stickyPortChain, Hook: NoHook, Rules: stickyPortRules(origTuple, outside, StickyPorts, StickyOutside)},
		{Name: nodePortPrefix + stickyPortChain, Hook: NoHook, Rules: stickyPortRules(
			dialledNodePort, outside, NodePortStickyPorts, NodePortStickyOutside)},
		{Name: stickyDrawChain, Hook: NoHook, Rules: stickyDrawRules(origTuple, Sticky, StickyEndpoints)},
		{Name: nodePortPrefix + stickyDrawChain, Hook: NoHook, Rules: stickyDrawRules(
			dialledNodePort, NodePortSticky, NodePortStickyEndpoints)},
		{Name: numberedChain, Hook: NoHook, Rules: []Rule{
			{DNAT{Key: []Field{L4Proto, Priority}, Map: Numbered}}, {DNAT{Key: []Field{L4Proto, Priority}, Map: NumberedCollided}}}},
		{Name: masqueradeChain, Hook: NoHook, Rules: masqueradeRules(family, config)},
		{Name: fromNodeChain, Hook: NoHook, Rules: []Rule{{IsLocal{Field: SourceAddr}, Masquerade{}}}},
		{Name: EntryChain, Hook: Prerouting, Priority: PriorityDNAT, Rules: []Rule{jump(servicesChain)}},
		{Name: "nat-output", Hook: Output, Priority: PriorityDNAT, Rules: []Rule{jump(servicesChain)}},
		{Name: "nat-postrouting", Hook: Postrouting, Priority: PrioritySNAT, Rules: append(unallocated(family, surroundings.ServiceCIDRs),
			Rule{ownPriorities, WritePriority{}},
			Rule{HasLabel{TranslatedLabel}, HasDestinationNAT{}, VerdictStatement{Verdict{Kind: Jump, Chain: masqueradeChain}}})},
	}
	if config.NodePorts.Localhost {
		chains = append(chains, Chain{Name: localhostChain, Hook: NoHook, Rules: localhostRules(family, config)})
	}
	return chains
}

// serviceRules begin by cleaning the priority: a foreign one in our range would be taken for a class.
func serviceRules(family model.Family, config Config) []Rule {
	rules := []Rule{
		{ownPriorities, WritePriority{}},
		{SetPriority{Key: origTuple, Map: Restricted}, VerdictStatement{Verdict{Kind: Jump, Chain: sourceRangesChain}}},
	}
	rules = append(rules, translation(origTuple, Services, Endpoints)...)
	rules = append(rules,
		append(matchNodePortAddr(family, config), VerdictStatement{Verdict{Kind: Jump, Chain: nodePortsChain}}),
		// A ClusterIP that the node has itself is its own business: a DNS cache may listen there.
		Rule{
			InSet{Key: []Field{DestinationAddr}, Set: ClusterIPs},
			IsLocal{Field: DestinationAddr, Not: true},
			VerdictStatement{Verdict{Kind: Goto, Chain: refuseChain}},
		})
	if config.NodePorts.Localhost { // the map knows all node ports, whatever class they have: no Service owns anything for it
		rules = append(rules, Rule{
			InPrefix{Field: DestinationAddr, Prefix: model.LoopbackPrefix(family)},
			SetPriority{Key: dialledNodePort, Map: NodePorts}, VerdictStatement{Verdict{Kind: Goto, Chain: localhostChain}},
		})
	}
	return rules
}

// RejectedOnLocalhost returns the protocols whose packets to node ports on loopback are refused and counted, as by
// kube-proxy with its gate KubeProxyNFTablesLocalhostNodePorts: those that the proxy does not serve there.
func RejectedOnLocalhost(family model.Family, config Config) []model.Protocol {
	if !config.NodePorts.Localhost {
		return nil
	}
	_, isServed := config.NodePorts.Loopback(family)
	return slices.DeleteFunc(slices.Clone(model.Protocols), func(protocol model.Protocol) bool {
		return isServed && protocol == model.TCP
	})
}

// RejectedCounter is the name of the counter of a protocol's packets that are refused there, the same as kube-proxy's.
func RejectedCounter(protocol model.Protocol) string {
	return "localhost-nodeport-rejected-" + protocolText(protocol)
}

// Counters returns the names of the counters that a family's table has, sorted.
func Counters(family model.Family, config Config) []string {
	var names []string
	for _, protocol := range RejectedOnLocalhost(family, config) {
		names = append(names, RejectedCounter(protocol))
	}
	slices.Sort(names)
	return names
}

// localhostRules count packets to node ports on loopback, and refuse them. What is served there goes on.
func localhostRules(family model.Family, config Config) []Rule {
	var rules []Rule
	for _, protocol := range RejectedOnLocalhost(family, config) {
		rules = append(rules, Rule{
			ProtocolIs{protocol}, Count{RejectedCounter(protocol)}, VerdictStatement{Verdict{Kind: Goto, Chain: refuseChain}},
		})
	}
	return append(rules, Rule{WritePriority{}})
}

// translation sends a connection to one of the frontend's endpoints, if the key is a frontend. A packet sees the
// tables as they are at each step: should it have a class and find no chain for it, or a slot without an endpoint, the
// client sends it again. So a connection that is labelled is either translated here or goes nowhere.
func translation(key []Field, services, endpoints Set, label ...Statement) []Rule {
	return []Rule{
		append(Rule{SetPriority{Key: key, Map: services}, SetLabel{TranslatedLabel}}, label...),
		{VerdictOf{Key: []Field{Priority}, Map: Dispatch}},
		{DNAT{Key: append(slices.Clone(key), Priority), Map: endpoints}},
		{ownPriorities, VerdictStatement{Verdict{Kind: Drop}}},
	}
}

// matchNodePortAddr tests whether a packet is for an address on which the tables serve node ports. Loopback does not
// count.
func matchNodePortAddr(family model.Family, config Config) Rule {
	if !config.NodePorts.All(family) {
		return Rule{InSet{Key: []Field{DestinationAddr}, Set: NodePortIPs}}
	}
	notLoopback := InPrefix{Field: DestinationAddr, Prefix: model.LoopbackPrefix(family), Not: true}
	return Rule{IsLocal{Field: DestinationAddr}, notLoopback}
}

// unallocated drops what is sent to an address that may become a ClusterIP. It waits until postrouting, where every
// other proxy on the node has had its turn: one that serves some of the Services beside us. An address that the node has
// itself, for a DNS cache perhaps, is its own business.
func unallocated(family model.Family, serviceCIDRs []netip.Prefix) []Rule {
	var rules []Rule
	for _, prefix := range serviceCIDRs {
		if model.FamilyOfPrefix(prefix) == family {
			rules = append(rules, Rule{
				InPrefix{Field: DestinationAddr, Prefix: prefix}, IsLocal{Field: DestinationAddr, Not: true}, VerdictStatement{Verdict{Kind: Drop}},
			})
		}
	}
	return rules
}

// refuseRules answer TCP with a reset, and everything else with the ICMP that kube-proxy sends for TCP too. The kernel
// bounds ICMP errors to six in a row and then one a second for each receiver (icmp_ratelimit), and TCP over IPv6
// overlooks one that comes while connect() is under way: either makes a client wait for its next SYN, a second later.
// A reset does neither.
func refuseRules() []Rule {
	return []Rule{
		{ProtocolIs{model.TCP}, Reject{TCPReset: true}},
		{Reject{}},
	}
}

func jump(chain string) Rule { return Rule{VerdictStatement{Verdict{Kind: Jump, Chain: chain}}} }

// masqueradeRules hide the client's address where the answers would not come back this way otherwise: in hairpin
// connections, in those to a ClusterIP from outside the pods, and in those to an external frontend that may go to
// another node.
func masqueradeRules(family model.Family, config Config) []Rule {
	clusterIP := InSet{Key: []Field{OriginalDestinationAddr}, Set: ClusterIPs}
	rules := []Rule{{InSet{Key: []Field{SourceAddr, DestinationAddr, L4Proto, DestinationPort}, Set: Hairpin}, Masquerade{}}}
	notFromPods := config.LocalTraffic.notFromPods(family, OriginalSourceAddr)
	switch {
	case config.MasqueradeAll:
		rules = append(rules, Rule{clusterIP, Masquerade{}})
	case len(notFromPods) > 0:
		rules = append(rules, append(append(Rule{clusterIP}, notFromPods...), Masquerade{}))
		if config.LocalTraffic.byInterface() { // the node's own packets come by none
			rules = append(rules, Rule{clusterIP, IsLocal{Field: SourceAddr}, Masquerade{}})
		}
	}
	rules = append(rules, Rule{clusterIP, VerdictStatement{Verdict{Kind: Return}}})
	fromNode := VerdictStatement{Verdict{Kind: Goto, Chain: fromNodeChain}}
	rules = append(rules, eachProtocol(InSet{Key: origTupleConntrack, Set: ExternalCluster}, Masquerade{})...)
	rules = append(rules, eachProtocol(InSet{Key: origTupleConntrack, Set: ExternalLocal}, fromNode)...)
	rules = append(rules, eachProtocol(InSet{Key: originallyDialledNodePort, Set: NodePortCluster}, Masquerade{})...)
	return append(rules, eachProtocol(InSet{Key: originallyDialledNodePort, Set: NodePortLocal}, fromNode)...)
}

// eachProtocol makes a rule for each protocol because nft knows the type of `ct original proto-dst` only after a
// protocol match.
func eachProtocol(statements ...Statement) []Rule {
	var rules []Rule
	for _, protocol := range model.Protocols {
		rules = append(rules, append(Rule{ProtocolIs{protocol}}, statements...))
	}
	return rules
}
