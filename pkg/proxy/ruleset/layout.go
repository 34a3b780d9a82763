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
	stickyPickChain   = "sticky-draw"
	numberedChain     = "numbered"
	masqueradeChain   = "masquerading"
	fromNodeChain     = "masquerade-node"
	sourceRangesChain = "source-ranges"
	localhostChain    = "localhost-nodeports"
	// Prefix of the names of chains for node ports; the chain without the prefix does the same for all other frontends.
	nodePortPrefix = "nodeport-"
)

// TranslatedLabel is the conntrack label of a connection to a frontend for which these tables choose an endpoint. If a
// chain of another program precedes ours and translates the connection, it has no label, and that program decides
// whether to masquerade it. A label persists from hook to hook, which a priority does not, because ip_forward
// overwrites it. A mark would not do either, because the CNI's rules may read it.
//
// If the dialled address is that of the endpoint, the connection has the label without `ct status dnat`.
//
// The number is arbitrary. Any other program that labels connections in this network namespace must use another one.
const TranslatedLabel = 86

// NodePortLabel is a second conntrack label of such a connection if a node port was dialled: a node port has no
// address, so after the translation it could not be distinguished from other frontends with its number.
const NodePortLabel = 87

// ownPriorities is the range of all values that we write into a packet's priority.
var ownPriorities = PriorityBetween{uint32(splitClass), uint32(lastClass)}

var (
	// packetFrontend is the frontend as the first packet of a connection has it.
	packetFrontend = []Field{DestinationAddr, L4Proto, DestinationPort}
	packetNodePort = []Field{L4Proto, DestinationPort}
	// conntrackFrontend is the same frontend as conntrack stores it after the DNAT.
	conntrackFrontend = []Field{OriginalDestinationAddr, L4Proto, OriginalDestinationPort}
	conntrackNodePort = []Field{L4Proto, OriginalDestinationPort}
)

// StaticChains returns the chains that a family's table has regardless of the Services.
//
// All base chains are of type nat: they see the first packet of each flow, so that established ones cost nothing. The
// path of a packet:
//
//	nat-prerouting, nat-output    services ─┬─ restricted map: number of a list; source-ranges: drop clients outside it
//	                                        ├─ services map:  class of the frontend, dispatched to lb-…, refuse or drop,
//	                                        │                 or to sticky-…, which finds or picks the client's endpoint
//	                                        ├─ endpoints map: the endpoint in the slot that lb-… picked
//	                                        ├─ a class or slot without an endpoint: the tables just changed, drop
//	                                        ├─ an address for node ports: nodeports, the same again by protocol and port
//	                                        ├─ a ClusterIP on a port that no Service defines: refuse
//	                                        └─ loopback, with kube-proxy's feature gate: localhost-nodeports, count and refuse
//	nat-postrouting               an untranslated address in a ServiceCIDR that is not this node's: drop
//	nat-postrouting               clear the priority that carried the slot
//	nat-postrouting               masquerading of connections translated here
func StaticChains(family model.Family, config Config, nodeState NodeState) []Chain {
	outside := config.matchOutside(family)
	chains := []Chain{
		{Name: refuseChain, Hook: NoHook, Rules: refuseRules()},
		{Name: servicesChain, Hook: NoHook, Rules: serviceRules(family, config)},
		{Name: nodePortsChain, Hook: NoHook, Rules: translationRules(
			packetNodePort, NodePorts, NodePortEndpoints, SetLabel{NodePortLabel})},
		{Name: stickyPortChain, Hook: NoHook, Rules: stickyPortRules(packetFrontend, outside, StickyPorts, StickyOutside)},
		{Name: nodePortPrefix + stickyPortChain, Hook: NoHook, Rules: stickyPortRules(
			packetNodePort, outside, NodePortStickyPorts, NodePortStickyOutside)},
		{Name: stickyPickChain, Hook: NoHook, Rules: stickyPickRules(packetFrontend, Sticky, StickyEndpoints)},
		{Name: nodePortPrefix + stickyPickChain, Hook: NoHook, Rules: stickyPickRules(
			packetNodePort, NodePortSticky, NodePortStickyEndpoints)},
		{Name: numberedChain, Hook: NoHook, Rules: []Rule{
			{DNAT{Key: []Field{L4Proto, Priority}, Map: Numbered}}, {DNAT{Key: []Field{L4Proto, Priority}, Map: NumberedCollided}}}},
		{Name: masqueradeChain, Hook: NoHook, Rules: masqueradeRules(family, config)},
		{Name: fromNodeChain, Hook: NoHook, Rules: []Rule{{IsLocal{Field: SourceAddr}, Masquerade{}}}},
		{Name: EntryChain, Hook: Prerouting, Priority: PriorityDNAT, Rules: []Rule{jump(servicesChain)}},
		{Name: "nat-output", Hook: Output, Priority: PriorityDNAT, Rules: []Rule{jump(servicesChain)}},
		{Name: "nat-postrouting", Hook: Postrouting, Priority: PrioritySNAT, Rules: append(unallocatedRules(family, nodeState.ServiceCIDRs),
			Rule{ownPriorities, WritePriority{}},
			Rule{HasLabel{TranslatedLabel}, HasDestinationNAT{}, VerdictStatement{Verdict{Kind: Jump, Chain: masqueradeChain}}})},
	}
	if config.NodePorts.Localhost {
		chains = append(chains, Chain{Name: localhostChain, Hook: NoHook, Rules: localhostRules(family, config)})
	}
	return chains
}

// serviceRules returns the rules of the services chain. They first clear a foreign priority in our range, because it
// would be taken for a class.
func serviceRules(family model.Family, config Config) []Rule {
	rules := []Rule{
		{ownPriorities, WritePriority{}},
		{SetPriority{Key: packetFrontend, Map: Restricted}, VerdictStatement{Verdict{Kind: Jump, Chain: sourceRangesChain}}},
	}
	rules = append(rules, translationRules(packetFrontend, Services, Endpoints)...)
	rules = append(rules,
		append(matchNodePortAddr(family, config), VerdictStatement{Verdict{Kind: Jump, Chain: nodePortsChain}}),
		// A ClusterIP that is also an address of the node is not refused: a DNS cache may listen there.
		Rule{
			InSet{Key: []Field{DestinationAddr}, Set: ClusterIPs},
			IsLocal{Field: DestinationAddr, Not: true},
			VerdictStatement{Verdict{Kind: Goto, Chain: refuseChain}},
		})
	if config.NodePorts.Localhost { // the map has all node ports of any class: no Service owns elements for this
		rules = append(rules, Rule{
			InPrefix{Field: DestinationAddr, Prefix: model.LoopbackPrefix(family)},
			SetPriority{Key: packetNodePort, Map: NodePorts}, VerdictStatement{Verdict{Kind: Goto, Chain: localhostChain}},
		})
	}
	return rules
}

// RejectedOnLocalhost returns the protocols whose packets to node ports on loopback are refused and counted, as by
// kube-proxy with its feature gate KubeProxyNFTablesLocalhostNodePorts: those that the proxy does not serve there.
func RejectedOnLocalhost(family model.Family, config Config) []model.Protocol {
	if !config.NodePorts.Localhost {
		return nil
	}
	_, servesTCP := config.NodePorts.Loopback(family)
	return slices.DeleteFunc(slices.Clone(model.Protocols), func(protocol model.Protocol) bool {
		return servesTCP && protocol == model.TCP
	})
}

// RejectedCounter is the name of the counter of a protocol's packets that are refused there, as in kube-proxy.
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

// localhostRules returns the rules that count and refuse packets to node ports on loopback. Packets of the protocols
// that are served there pass.
func localhostRules(family model.Family, config Config) []Rule {
	var rules []Rule
	for _, protocol := range RejectedOnLocalhost(family, config) {
		rules = append(rules, Rule{
			ProtocolIs{protocol}, Count{RejectedCounter(protocol)}, VerdictStatement{Verdict{Kind: Goto, Chain: refuseChain}},
		})
	}
	return append(rules, Rule{WritePriority{}})
}

// translationRules returns the rules that send a connection to one of the frontend's endpoints, if the key is a
// frontend. A packet sees the tables as they are at each step: if it has a class without a chain, or a slot without an
// endpoint, it is dropped and the client sends it again. So a labelled connection is translated here, refused or
// dropped.
func translationRules(key []Field, services, endpoints Set, label ...Statement) []Rule {
	return []Rule{
		append(Rule{SetPriority{Key: key, Map: services}, SetLabel{TranslatedLabel}}, label...),
		{VerdictOf{Key: []Field{Priority}, Map: Dispatch}},
		{DNAT{Key: append(slices.Clone(key), Priority), Map: endpoints}},
		{ownPriorities, VerdictStatement{Verdict{Kind: Drop}}},
	}
}

// matchNodePortAddr returns the match for packets to an address on which the tables serve node ports. Loopback does not
// count.
func matchNodePortAddr(family model.Family, config Config) Rule {
	if !config.NodePorts.All(family) {
		return Rule{InSet{Key: []Field{DestinationAddr}, Set: NodePortIPs}}
	}
	notLoopback := InPrefix{Field: DestinationAddr, Prefix: model.LoopbackPrefix(family), Not: true}
	return Rule{IsLocal{Field: DestinationAddr}, notLoopback}
}

// unallocatedRules returns the rules that drop packets to an address that may become a ClusterIP. They are in
// postrouting, after the chains of every other proxy on the node that serves some of the Services. An address of the
// node itself, perhaps for a DNS cache, is exempt.
func unallocatedRules(family model.Family, serviceCIDRs []netip.Prefix) []Rule {
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

// refuseRules returns the rules that reply to TCP with a reset, and to everything else with the ICMP error that
// kube-proxy sends for TCP too. The kernel limits ICMP errors to six in a row and then one a second for each receiver
// (icmp_ratelimit), and TCP over IPv6 ignores one that arrives during connect(): either makes a client wait for its
// next SYN, a second later. A reset does neither.
func refuseRules() []Rule {
	return []Rule{
		{ProtocolIs{model.TCP}, Reject{TCPReset: true}},
		{Reject{}},
	}
}

func jump(chain string) Rule { return Rule{VerdictStatement{Verdict{Kind: Jump, Chain: chain}}} }

// masqueradeRules returns the rules that hide the client's address where replies would not return this way otherwise:
// in hairpin connections, in those to a ClusterIP from outside the pods, and in those to an external frontend that may
// go to another node.
func masqueradeRules(family model.Family, config Config) []Rule {
	clusterIP := InSet{Key: []Field{OriginalDestinationAddr}, Set: ClusterIPs}
	rules := []Rule{{InSet{Key: []Field{SourceAddr, DestinationAddr, L4Proto, DestinationPort}, Set: Hairpin}, Masquerade{}}}
	notFromPods := config.LocalTraffic.matchNotFromPods(family, OriginalSourceAddr)
	switch {
	case config.MasqueradeAll:
		rules = append(rules, Rule{clusterIP, Masquerade{}})
	case len(notFromPods) > 0:
		rules = append(rules, append(append(Rule{clusterIP}, notFromPods...), Masquerade{}))
		if config.LocalTraffic.detectsByInterface() { // the node's own packets have no input interface
			rules = append(rules, Rule{clusterIP, IsLocal{Field: SourceAddr}, Masquerade{}})
		}
	}
	rules = append(rules, Rule{clusterIP, VerdictStatement{Verdict{Kind: Return}}})
	fromNode := VerdictStatement{Verdict{Kind: Goto, Chain: fromNodeChain}}
	rules = append(rules, eachProtocol(InSet{Key: conntrackFrontend, Set: ExternalCluster}, Masquerade{})...)
	rules = append(rules, eachProtocol(InSet{Key: conntrackFrontend, Set: ExternalLocal}, fromNode)...)
	rules = append(rules, eachProtocol(InSet{Key: conntrackNodePort, Set: NodePortCluster}, Masquerade{})...)
	return append(rules, eachProtocol(InSet{Key: conntrackNodePort, Set: NodePortLocal}, fromNode)...)
}

// eachProtocol returns a rule for each protocol, because nft knows the type of `ct original proto-dst` only after a
// protocol match.
func eachProtocol(statements ...Statement) []Rule {
	var rules []Rule
	for _, protocol := range model.Protocols {
		rules = append(rules, append(Rule{ProtocolIs{protocol}}, statements...))
	}
	return rules
}
