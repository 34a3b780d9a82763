//go:build linux

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// The connections in the network of these tests, as its router sees them.
const (
	forwarded = "client to server"
	incoming  = "client to router"
	outgoing  = "router to server"
	toItself  = "router to itself"
)

// fact is a condition, and the connections for which it is true at a hook.
type fact struct {
	hook      ruleset.Hook
	condition ruleset.Statement
	want      []string
}

// facts are the conditions on which the layout relies. A nat chain sees a connection of the router to itself only on
// its way out.
func facts() map[string]fact {
	local := func(field ruleset.Field) ruleset.IsLocal { return ruleset.IsLocal{Field: field} }
	notLocal := func(field ruleset.Field) ruleset.IsLocal { return ruleset.IsLocal{Field: field, Not: true} }
	notFrom := func(name string) ruleset.NotFromInterface { return ruleset.NotFromInterface{Name: name} }
	notFromAny := func(prefix string) ruleset.NotFromInterface {
		return ruleset.NotFromInterface{Name: prefix, Prefix: true}
	}
	source, destination := ruleset.SourceAddr, ruleset.DestinationAddr
	return map[string]fact{
		"postrouting: the input link of forwarded packets is known, and local ones have none": {
			ruleset.Postrouting, notFrom(clientSide), []string{outgoing, toItself}},
		"postrouting: the output link is not the input link": {
			ruleset.Postrouting, notFrom(serverSide), []string{forwarded, outgoing, toItself}},
		"postrouting: part of a link's name does not match": {
			ruleset.Postrouting, notFrom("client"), []string{forwarded, outgoing, toItself}},
		"postrouting: a prefix of a link's name matches": {ruleset.Postrouting, notFromAny("client"), []string{outgoing, toItself}},
		"prerouting: the input link is known":            {ruleset.Prerouting, notFrom(clientSide), nil},
		"output: there is no input link":                 {ruleset.Output, notFromAny("client"), []string{outgoing, toItself}},
		"prerouting: a source that is not local":         {ruleset.Prerouting, notLocal(source), []string{forwarded, incoming}},
		"prerouting: a source that is local":             {ruleset.Prerouting, local(source), nil},
		"prerouting: a destination that is local":        {ruleset.Prerouting, local(destination), []string{incoming}},
		"prerouting: a destination that is not local":    {ruleset.Prerouting, notLocal(destination), []string{forwarded}},
		"output: a source that is local":                 {ruleset.Output, local(source), []string{outgoing, toItself}},
		"output: a destination that is local":            {ruleset.Output, local(destination), []string{toItself}},
		"postrouting: a source that is local":            {ruleset.Postrouting, local(source), []string{outgoing, toItself}},
		"postrouting: a source that is not local":        {ruleset.Postrouting, notLocal(source), []string{forwarded}},
		"postrouting: a destination that is local":       {ruleset.Postrouting, local(destination), []string{toItself}},
	}
}

// The rules of this test record the connections that they match.
func TestConditionsAtEachHook(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			n := newNetwork(t, family)
			recorded := map[string]ruleset.Set{}
			var o operations
			tracking(o.do(ruleset.Add, family, ruleset.TableObject{}), family)
			for name, fact := range facts() {
				recorded[name] = ruleset.Affinity(uint32(len(recorded)))
				o.do(ruleset.Add, family, ruleset.SetObject{Set: recorded[name]})
				chain := n.recorderChain(recorded[name], fact)
				o.do(ruleset.Add, family, ruleset.ChainObject{Chain: chain}).do(ruleset.Add, family, ruleset.RulesObject{Chain: chain})
			}
			c := dial(t, n.router, Options{})
			commit(t, c, o.Batch)
			listen(t, n.server, n.serverAddr)
			listen(t, n.router, n.routerAddr)
			connectFrom(t, n.client, n.clientAddr, n.serverAddr)
			connectFrom(t, n.client, n.clientAddr, n.routerAddr)
			connectFrom(t, n.router, n.routerFarAddr, n.serverAddr)
			connectFrom(t, n.router, n.routerFarAddr, n.routerAddr)
			for name, fact := range facts() {
				got := n.connections(elementsOf(t, c, family, recorded[name]))
				if diff := cmp.Diff(slices.Sorted(slices.Values(fact.want)), got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// tracking makes the kernel track connections: without a rule that needs that, no nat chain sees any packet.
func tracking(o *operations, family model.Family) {
	chain := regular("tracking", ruleset.Rule{ruleset.HasDestinationNAT{}})
	o.do(ruleset.Add, family, ruleset.ChainObject{Chain: chain}).do(ruleset.Add, family, ruleset.RulesObject{Chain: chain})
}

// What the rules write into the priority of packets to the server and to the router.
const (
	toServer uint32 = 1
	toRouter uint32 = 2
)

// recorderChain returns a chain that records the source of packets that meet the condition, and their destination as a
// number.
func (n network) recorderChain(recorded ruleset.Set, fact fact) ruleset.Chain {
	var rules []ruleset.Rule
	for number, to := range map[uint32]netip.Addr{toServer: n.serverAddr, toRouter: n.routerAddr} {
		rules = append(rules, ruleset.Rule{
			fact.condition,
			ruleset.InPrefix{Field: ruleset.DestinationAddr, Prefix: netip.PrefixFrom(to, to.BitLen())},
			ruleset.WritePriority{Number: number},
			ruleset.UpdateAffinity{Map: recorded, Mask: 0xffffffff, Timeout: time.Hour},
			ruleset.WritePriority{},
		})
	}
	priority := ruleset.PrioritySNAT
	if fact.hook == ruleset.Prerouting || fact.hook == ruleset.Output {
		priority = ruleset.PriorityDNAT
	}
	return ruleset.Chain{Name: "of-" + recorded.Name, Hook: fact.hook, Priority: priority, Rules: rules}
}

// connections returns the names of the recorded connections.
func (n network) connections(recorded []ruleset.Element) []string {
	names := map[ruleset.Tuple]string{
		{Addr: n.clientAddr, Number: toServer}:    forwarded,
		{Addr: n.clientAddr, Number: toRouter}:    incoming,
		{Addr: n.routerFarAddr, Number: toServer}: outgoing,
		{Addr: n.routerFarAddr, Number: toRouter}: toItself,
	}
	var connections []string
	for _, element := range recorded {
		name, ok := names[element.Key]
		if !ok || element.Value.Number != element.Key.Number {
			name = fmt.Sprintf("%s to %d: %d", element.Key.Addr, element.Key.Number, element.Value.Number)
		}
		connections = append(connections, name)
	}
	slices.Sort(connections)
	return connections
}
