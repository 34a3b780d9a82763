//go:build linux

package nft

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// addresses are used in the tests' rules and elements.
type addresses struct {
	service, balancer, endpoint, client, node netip.Addr
	cluster, services, loopback, allowedRange netip.Prefix
}

func addressesOf(family model.Family) addresses {
	if family == model.IPv4 {
		return addresses{
			service:      netip.MustParseAddr("10.96.0.1"),
			balancer:     netip.MustParseAddr("203.0.113.5"),
			endpoint:     netip.MustParseAddr("10.244.0.2"),
			client:       netip.MustParseAddr("192.0.2.7"),
			node:         netip.MustParseAddr("172.18.0.3"),
			cluster:      netip.MustParsePrefix("10.244.0.0/16"),
			services:     netip.MustParsePrefix("10.96.0.0/12"),
			loopback:     netip.MustParsePrefix("127.0.0.0/8"),
			allowedRange: netip.MustParsePrefix("198.51.100.64/26"),
		}
	}
	return addresses{
		service:      netip.MustParseAddr("fd00:10:96::1"),
		balancer:     netip.MustParseAddr("2001:db8:5::5"),
		endpoint:     netip.MustParseAddr("fd00:10:244::2"),
		client:       netip.MustParseAddr("2001:db8::7"),
		node:         netip.MustParseAddr("fd00:172:18::3"),
		cluster:      netip.MustParsePrefix("fd00:10:244::/56"),
		services:     netip.MustParsePrefix("fd00:10:96::/108"),
		loopback:     netip.MustParsePrefix("::1/128"),
		allowedRange: netip.MustParsePrefix("2001:db8:40::/42"),
	}
}

// affinity is a map of clients; stickyPort and stickyEndpoint are numbers of a Service port and of its endpoint.
var affinity = ruleset.Affinity(7)

const (
	stickyPort     uint32 = 0xf0000700
	stickyEndpoint uint32 = 0xf2000701
	stickyMask     uint32 = 0xfdffff00
)

var (
	frontendFields = []ruleset.Field{ruleset.DestinationAddr, ruleset.L4Proto, ruleset.DestinationPort}
	nodePortFields = []ruleset.Field{ruleset.L4Proto, ruleset.DestinationPort}
	originalFields = []ruleset.Field{ruleset.OriginalDestinationAddr, ruleset.L4Proto, ruleset.OriginalDestinationPort}
	hairpinFields  = []ruleset.Field{ruleset.SourceAddr, ruleset.DestinationAddr, ruleset.L4Proto, ruleset.DestinationPort}
)

func verdictOf(kind ruleset.VerdictKind, chain string) ruleset.VerdictStatement {
	return ruleset.VerdictStatement{Verdict: ruleset.Verdict{Kind: kind, Chain: chain}}
}

func jump(chain string) ruleset.Rule { return ruleset.Rule{verdictOf(ruleset.Jump, chain)} }

func regular(name string, rules ...ruleset.Rule) ruleset.Chain {
	return ruleset.Chain{Name: name, Hook: ruleset.NoHook, Rules: rules}
}

// everyChain holds every statement. Each chain follows the chains that it leads to.
func everyChain(family model.Family) []ruleset.Chain {
	return slices.Concat(leafChains(family), translatingChains(family), []ruleset.Chain{
		{Name: "nat-prerouting", Hook: ruleset.Prerouting, Priority: ruleset.PriorityDNAT, Rules: []ruleset.Rule{jump("services")}},
		{Name: "nat-output", Hook: ruleset.Output, Priority: ruleset.PriorityDNAT, Rules: []ruleset.Rule{jump("services")}},
		{Name: "nat-postrouting", Hook: ruleset.Postrouting, Priority: ruleset.PrioritySNAT, Rules: postroutingRules(family)},
	})
}

// leafChains are those that verdicts in maps lead to.
func leafChains(family model.Family) []ruleset.Chain {
	tcp := ruleset.ProtocolIs{Protocol: model.TCP}
	notLocal := ruleset.IsLocal{Field: ruleset.SourceAddr, Not: true}
	notCluster := ruleset.InPrefix{Field: ruleset.SourceAddr, Prefix: addressesOf(family).cluster, Not: true}
	return []ruleset.Chain{
		regular("refuse", ruleset.Rule{ruleset.Count{Counter: "refused"}, ruleset.Reject{}}),
		regular("drop-all", ruleset.Rule{verdictOf(ruleset.Drop, "")}),
		regular("reset-tcp", ruleset.Rule{tcp, ruleset.Reject{TCPReset: true}}),
		regular("lb-3", ruleset.Rule{ruleset.RandomSlot{Slots: 3, First: ruleset.ClusterSlot}}),
		regular("lb-3-local-1",
			ruleset.Rule{notCluster, notLocal, ruleset.RandomSlot{Slots: 1, First: ruleset.LocalSlot}, verdictOf(ruleset.Return, "")},
			ruleset.Rule{ruleset.RandomSlot{Slots: 3, First: ruleset.ClusterSlot}}),
		regular("lb-3-local-0",
			ruleset.Rule{ruleset.NotFromInterface{Name: "veth", Prefix: true}, notLocal, verdictOf(ruleset.Drop, "")},
			ruleset.Rule{ruleset.RandomSlot{Slots: 3, First: ruleset.ClusterSlot}}),
		regular("sticky-draw",
			ruleset.Rule{
				ruleset.SetPriority{Key: frontendFields, Map: ruleset.Sticky},
				ruleset.VerdictOf{Key: []ruleset.Field{ruleset.Priority}, Map: ruleset.StickyDispatch},
			},
			ruleset.Rule{ruleset.SetPriority{
				Key: append(slices.Clone(frontendFields), ruleset.Priority), Map: ruleset.StickyEndpoints}}),
		regular("numbered", ruleset.Rule{ruleset.DNAT{Key: []ruleset.Field{ruleset.L4Proto, ruleset.Priority}, Map: ruleset.Numbered}}),
		affinityChain(3 * time.Hour),
		regular("masquerade-node", ruleset.Rule{ruleset.IsLocal{Field: ruleset.SourceAddr}, ruleset.Masquerade{}}),
	}
}

// affinityChain returns the chain that stores the endpoints of clients for a while, and finds those that it stored.
func affinityChain(timeout time.Duration) ruleset.Chain {
	isEndpoint := ruleset.PriorityBetween{First: 0xf2000000, Last: 0xf2ffffff}
	remember := ruleset.Rule{isEndpoint, ruleset.UpdateAffinity{Map: affinity, Mask: stickyMask, Timeout: timeout}}
	return regular("sticky-7",
		ruleset.Rule{ruleset.SetPriority{Key: frontendFields, Map: ruleset.StickyPorts}},
		ruleset.Rule{ruleset.SetPriority{Key: []ruleset.Field{ruleset.Priority, ruleset.SourceAddr}, Map: affinity}},
		jump("numbered"),
		ruleset.Rule{isEndpoint, ruleset.DeleteAffinity{Map: affinity, Mask: stickyMask}},
		jump("sticky-draw"),
		remember,
		jump("numbered"))
}

// translatingChains are those that every connection passes.
func translatingChains(family model.Family) []ruleset.Chain {
	addrs := addressesOf(family)
	tcp := ruleset.ProtocolIs{Protocol: model.TCP}
	dialledAddr := []ruleset.Field{ruleset.DestinationAddr}
	translation := func(key []ruleset.Field, services, endpoints ruleset.Set) []ruleset.Rule {
		return []ruleset.Rule{
			{ruleset.SetPriority{Key: key, Map: services}},
			{ruleset.VerdictOf{Key: []ruleset.Field{ruleset.Priority}, Map: ruleset.Dispatch}},
			{ruleset.DNAT{Key: append(slices.Clone(key), ruleset.Priority), Map: endpoints}},
		}
	}
	services := []ruleset.Rule{
		{ruleset.SetPriority{Key: frontendFields, Map: ruleset.Restricted}, verdictOf(ruleset.Jump, "source-ranges")},
		{ruleset.PriorityBetween{First: 0xf5000000, Last: 0xf5ffffff}, verdictOf(ruleset.Drop, "")},
	}
	services = append(services, translation(frontendFields, ruleset.Services, ruleset.Endpoints)...)
	return []ruleset.Chain{
		regular("nodeports", translation(nodePortFields, ruleset.NodePorts, ruleset.NodePortEndpoints)...),
		ruleset.SourceRangesChain([]int{addrs.client.BitLen(), addrs.allowedRange.Bits()}),
		regular("services", append(services,
			ruleset.Rule{ruleset.InSet{Key: dialledAddr, Set: ruleset.NodePortIPs}, verdictOf(ruleset.Jump, "nodeports")},
			ruleset.Rule{
				ruleset.IsLocal{Field: ruleset.DestinationAddr},
				ruleset.InPrefix{Field: ruleset.DestinationAddr, Prefix: addrs.loopback, Not: true},
				verdictOf(ruleset.Jump, "nodeports"),
			},
			ruleset.Rule{
				ruleset.InSet{Key: dialledAddr, Set: ruleset.ClusterIPs},
				ruleset.IsLocal{Field: ruleset.DestinationAddr, Not: true},
				verdictOf(ruleset.Goto, "refuse"),
			})...),
		regular("external",
			ruleset.Rule{tcp, ruleset.InSet{Key: originalFields, Set: ruleset.ExternalCluster}, verdictOf(ruleset.Return, "")},
			ruleset.Rule{tcp, ruleset.InSet{Key: originalFields[1:], Set: ruleset.NodePortCluster}, verdictOf(ruleset.Return, "")}),
	}
}

func postroutingRules(family model.Family) []ruleset.Rule {
	addrs := addressesOf(family)
	originalAddr := []ruleset.Field{ruleset.OriginalDestinationAddr}
	return []ruleset.Rule{
		{ruleset.InPrefix{Field: ruleset.DestinationAddr, Prefix: addrs.services}, verdictOf(ruleset.Drop, "")},
		{ruleset.PriorityBetween{First: ruleset.LocalSlot, Last: ruleset.ClusterSlot | 0xffffff}, ruleset.WritePriority{}},
		jump("external"),
		{ruleset.HasDestinationNAT{}, ruleset.InSet{Key: hairpinFields, Set: ruleset.Hairpin}, ruleset.Masquerade{}},
		{
			ruleset.InSet{Key: originalAddr, Set: ruleset.ClusterIPs},
			ruleset.InPrefix{Field: ruleset.OriginalSourceAddr, Prefix: addrs.cluster, Not: true},
			ruleset.Masquerade{},
		},
		{
			ruleset.InSet{Key: originalAddr, Set: ruleset.NodePortIPs, Not: true},
			ruleset.NotFromInterface{Name: "cbr0"},
			verdictOf(ruleset.Goto, "masquerade-node"),
		},
	}
}
