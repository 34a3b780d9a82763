//go:build linux

package flows

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// The machines of the tests.
var (
	endpointA, endpointB   = netip.MustParseAddrPort("10.244.1.1:53"), netip.MustParseAddrPort("10.244.2.1:53")
	endpoint6A, endpoint6B = netip.MustParseAddrPort("[fd00:244::1]:53"), netip.MustParseAddrPort("[fd00:244::2]:53")

	clusterScope = selection.Scope{
		Pods:      []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
		NodePorts: []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd00:30::1")},
	}
	// podless is the scope of a node whose configuration does not say which addresses pods have.
	podless = selection.Scope{NodePorts: clusterScope.NodePorts}
	// onAll is the scope of a node that serves node ports on every address.
	onAll = selection.Scope{Pods: clusterScope.Pods, OnAll: model.Families}
)

// isNodes is the kernel of a node with three addresses, one of them by a route alone.
func isNodes(addr netip.Addr) (bool, error) {
	switch addr.String() {
	case "172.30.0.1", "192.168.0.1", "198.51.100.7":
		return true, nil
	}
	return false, nil
}

const (
	pod, node, host = "10.244.1.9:40000", "172.30.0.1:40000", "172.30.0.201:40000"
	host6           = "[fd00:30::c9]:40000"
)

type permitted = []netip.AddrPort

// frontend returns flows for a frontend of UDP whose endpoints answer all clients.
func frontend(addrPort string, endpoints ...netip.AddrPort) selection.Flows {
	return split(addrPort, endpoints, endpoints)
}

func split(addrPort string, inside, outside permitted) selection.Flows {
	at := netip.MustParseAddrPort(addrPort)
	return selection.Flows{
		Frontend: model.Frontend{Addr: at.Addr(), Protocol: model.UDP, Port: at.Port()}, Inside: inside, Outside: outside,
	}
}

func flowOf(client, dialled, answerer string) flow {
	return flow{
		client:  netip.MustParseAddrPort(client).Addr(),
		dialled: netip.MustParseAddrPort(dialled), answerer: netip.MustParseAddrPort(answerer),
	}
}

func inZone(f flow) flow {
	f.inZone = true
	return f
}

type staleCase struct {
	flows []selection.Flows
	scope selection.Scope
	flow  flow
	want  bool
}

func checkStale(t *testing.T, cases map[string]staleCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			// Neither the order of the flows nor repetitions may matter.
			backwards := slices.Clone(c.flows)
			slices.Reverse(backwards)
			for _, flows := range [][]selection.Flows{c.flows, backwards, slices.Concat(c.flows, c.flows)} {
				if got, err := newVerdicts(flows, c.scope, isNodes).isStale(c.flow); got != c.want || err != nil {
					t.Errorf("with %v: stale = %t, %v; want %t", flows, got, err, c.want)
				}
			}
		})
	}
}

func list(flows ...selection.Flows) []selection.Flows { return flows }

func TestAFlowIsStaleIfWhoAnswersItMayNot(t *testing.T) {
	const dns = "10.96.0.10:53"
	checkStale(t, map[string]staleCase{
		"its endpoint serves": {list(frontend(dns, endpointA, endpointB)), clusterScope, flowOf(pod, dns, "10.244.1.1:53"), false},
		"its endpoint left":   {list(frontend(dns, endpointB)), clusterScope, flowOf(pod, dns, "10.244.1.1:53"), true},
		"its endpoint left, and it is in a zone": {
			list(frontend(dns, endpointB)), clusterScope, inZone(flowOf(pod, dns, "10.244.1.1:53")), true},
		"its endpoint's port changed, as when a target port is edited": {
			list(frontend(dns, endpointA)), clusterScope, flowOf(pod, dns, "10.244.1.1:54"), true,
		},
		"the last endpoint left, or the Service is gone": {list(frontend(dns)), clusterScope, flowOf(pod, dns, "10.244.1.1:53"), true},
		"another frontend's flow": {
			list(frontend(dns)), clusterScope, flowOf(pod, "10.96.0.11:53", "10.244.1.1:53"), false,
		},
		"another port's flow": {
			list(frontend(dns)), clusterScope, flowOf(pod, "10.96.0.10:54", "10.244.1.1:53"), false,
		},
		"a flow from a pod to a pod": {
			list(frontend(dns, endpointB)), clusterScope, flowOf(pod, "10.244.1.1:53", "10.244.1.1:53"), false,
		},
		"another program translated it, before the frontend was ours": {
			list(frontend(dns, endpointA)), clusterScope, flowOf(host, dns, "203.0.113.9:53"), true,
		},
		"IPv6, its endpoint serves": {
			list(frontend("[fd00:96::a]:53", endpoint6A)), clusterScope, flowOf(host6, "[fd00:96::a]:53", "[fd00:244::1]:53"), false,
		},
		"IPv6, its endpoint left": {
			list(frontend("[fd00:96::a]:53", endpoint6B)), clusterScope, flowOf(host6, "[fd00:96::a]:53", "[fd00:244::1]:53"), true,
		},
		"the frontend went to another Service, with this endpoint": {
			list(frontend(dns), frontend(dns, endpointA)), clusterScope, flowOf(pod, dns, "10.244.1.1:53"), false,
		},
		"the frontend went to another Service, without this endpoint": {
			list(frontend(dns), frontend(dns, endpointB)), clusterScope, flowOf(pod, dns, "10.244.1.1:53"), true,
		},
	})
}

func TestWhoMayAnswerDependsOnWhereTheClientIs(t *testing.T) {
	const balancer = "203.0.113.1:53"
	local := list(split(balancer, permitted{endpointA, endpointB}, permitted{endpointA}))
	onB := func(client string) flow { return flowOf(client, balancer, "10.244.2.1:53") }
	checkStale(t, map[string]staleCase{
		"a pod may be answered by any":         {local, clusterScope, onB(pod), false},
		"so may this node":                     {local, clusterScope, onB(node), false},
		"a machine outside only by those here": {local, clusterScope, onB(host), true},
		"no endpoint may answer outside, and one inside": {
			list(split(balancer, permitted{endpointB}, nil)), clusterScope, onB(host), true,
		},
		"if pods are not recognized, either list permits":   {local, podless, onB(host), false},
		"the list for outside permits too, then":            {list(split(balancer, nil, permitted{endpointB})), podless, onB(host), false},
		"if neither list permits, it is stale all the same": {list(split(balancer, permitted{endpointA}, nil)), podless, onB(host), true},
		"this node is known without knowing the pods": {
			list(split(balancer, permitted{endpointA}, permitted{endpointB})), podless, onB(node), true,
		},
		"a pod is not outside, even if only outside is permitted": {
			list(split(balancer, nil, permitted{endpointB})), clusterScope, onB(pod), true,
		},
	})
}

func TestAFlowThatNothingTranslatedIsStaleOnceThereAreEndpoints(t *testing.T) {
	const dns = "10.96.0.10:53"
	hole := flowOf(host, dns, dns)
	checkStale(t, map[string]staleCase{
		"endpoints came":                                       {list(frontend(dns, endpointA)), clusterScope, hole, true},
		"they came for clients inside only":                    {list(split(dns, permitted{endpointA}, nil)), clusterScope, hole, true},
		"they came for clients outside only":                   {list(split(dns, nil, permitted{endpointA})), clusterScope, hole, true},
		"the frontend has no endpoint: perhaps a process does": {list(frontend(dns)), clusterScope, hole, false},
		"it is in the zone of another program":                 {list(frontend(dns, endpointA)), clusterScope, inZone(hole), false},
		"it is another frontend's":                             {list(frontend("10.96.0.11:53", endpointA)), clusterScope, hole, false},
		"a frontend whose endpoint has its address answers": {
			list(frontend("10.244.1.1:53", endpointA)), clusterScope, flowOf(pod, "10.244.1.1:53", "10.244.1.1:53"), false,
		},
		"a node port without endpoints, and a process that listens there": {
			list(frontend("0.0.0.0:30053")), clusterScope, flowOf(host, "172.30.0.1:30053", "172.30.0.1:30053"), false,
		},
		"a node port that got endpoints": {
			list(frontend("0.0.0.0:30053", endpointA)), clusterScope, flowOf(host, "172.30.0.1:30053", "172.30.0.1:30053"), true,
		},
	})
}

// nodePortOf returns flows for the node port 30053 of IPv4, which the first endpoints may answer. The second ones are
// endpoints that may not answer, or former ones.
func nodePortOf(serving, others permitted) selection.Flows {
	flows := frontend("0.0.0.0:30053", serving...)
	flows.Endpoints = slices.Concat(serving, others)
	return flows
}

func incomplete(flows selection.Flows) selection.Flows {
	flows.Incomplete = true
	return flows
}

const (
	served   = "172.30.0.1:30053"   // an address of the node that serves node ports
	unserved = "192.168.0.1:30053"  // one that serves them only where all do
	routed   = "198.51.100.7:30053" // an address that is local by a route alone
	foreign  = "203.0.113.9:53"     // no endpoint answers there
)

func TestANodePortIsMatchedByAddressAndPort(t *testing.T) {
	moved := list(nodePortOf(permitted{endpointB}, permitted{endpointA}))
	nodePort6 := frontend("[::]:30053", endpoint6B)
	nodePort6.Endpoints = permitted{endpoint6A, endpoint6B}
	onA := func(dialled string) flow { return flowOf(host, dialled, "10.244.1.1:53") }
	checkStale(t, map[string]staleCase{
		"an address that serves node ports":    {moved, clusterScope, onA(served), true},
		"such an address, another port":        {moved, clusterScope, onA("172.30.0.1:30054"), false},
		"such an address, its endpoint serves": {list(nodePortOf(permitted{endpointA}, nil)), clusterScope, onA(served), false},
		"the node port of the other family": {
			moved, clusterScope, flowOf(host6, "[fd00:30::1]:30053", "[fd00:244::1]:53"), false,
		},
		"IPv6": {list(nodePort6), clusterScope, flowOf(host6, "[fd00:30::1]:30053", "[fd00:244::1]:53"), true},
		"a frontend of that address and port comes first, and permits": {
			append(moved, frontend(served, endpointA)), clusterScope, onA(served), false,
		},
		"a frontend of that address and port comes first, and forbids": {
			list(nodePortOf(permitted{endpointA}, nil), frontend(served, endpointB)), clusterScope, onA(served), true,
		},
		"a frontend comes first at an address without node ports, too": {
			append(moved, frontend(unserved, endpointA)), clusterScope, onA(unserved), false,
		},
	})
}

func TestAFlowToAnAddressThatServesNodePortsNoMoreEnds(t *testing.T) {
	serving, left := list(nodePortOf(permitted{endpointA}, nil)), list(nodePortOf(permitted{endpointB}, permitted{endpointA}))
	gone := list(nodePortOf(nil, permitted{endpointA}))
	checkStale(t, map[string]staleCase{
		"its endpoint serves, at other addresses":        {serving, clusterScope, flowOf(host, unserved, "10.244.1.1:53"), true},
		"its endpoint left":                              {left, clusterScope, flowOf(host, unserved, "10.244.1.1:53"), true},
		"the Service is gone":                            {gone, clusterScope, flowOf(host, unserved, "10.244.1.1:53"), true},
		"the address is no longer the node's":            {serving, clusterScope, flowOf(pod, "172.30.0.9:30053", "10.244.1.1:53"), true},
		"a node without a served address":                {serving, podless, flowOf(host, unserved, "10.244.1.1:53"), true},
		"in IPv4 all serve: it goes on":                  {serving, onAll, flowOf(host, unserved, "10.244.1.1:53"), false},
		"all serve, and the address is local by a route": {serving, onAll, flowOf(host, routed, "10.244.1.1:53"), false},
		"the same, and its endpoint left":                {left, onAll, flowOf(host, routed, "10.244.1.1:53"), true},
		"all serve, but the address is local no more":    {serving, onAll, flowOf(host, "198.51.100.8:30053", "10.244.1.1:53"), true},
		"all serve, but for loopback":                    {serving, onAll, flowOf(node, "127.0.0.1:30053", "10.244.1.1:53"), true},
		"nothing translated it: a process answers there": {serving, clusterScope, flowOf(host, unserved, unserved), false},
		"nothing translated it, to another machine":      {serving, onAll, flowOf(pod, "198.51.100.8:30053", "198.51.100.8:30053"), false},
		"nothing translated it, where all serve":         {serving, onAll, flowOf(host, routed, routed), true},
		"an endpoint answers at its own address, that number": {
			list(nodePortOf(permitted{netip.MustParseAddrPort("10.244.1.1:30053")}, nil)), clusterScope,
			flowOf(pod, "10.244.1.1:30053", "10.244.1.1:30053"), false,
		},
	})
}

// A port forwarding with the number of a node port is not ours, as long as no endpoint of the Service answers.
func TestWhatAnotherProgramTranslatedStays(t *testing.T) {
	complete, uncertain := nodePortOf(permitted{endpointA}, permitted{endpointB}), incomplete(nodePortOf(permitted{endpointA}, nil))
	gone := nodePortOf(nil, permitted{endpointA})
	for name, scope := range map[string]selection.Scope{"primary": clusterScope, "all": onAll} {
		cases := map[string]staleCase{}
		for _, dialled := range []string{served, unserved, routed, "203.0.113.1:30053"} {
			cases[name+", the Service serves: "+dialled] = staleCase{list(complete), scope, flowOf(host, dialled, foreign), false}
			cases[name+", the Service is gone: "+dialled] = staleCase{list(gone), scope, flowOf(host, dialled, foreign), false}
		}
		// After a start we do not know the former endpoints. Flows to addresses that serve node ports belong to the Service.
		cases[name+", after a start, served"] = staleCase{list(uncertain), scope, flowOf(host, served, foreign), true}
		cases[name+", after a start, no address of ours"] = staleCase{list(uncertain), scope, flowOf(host, "203.0.113.1:30053", foreign), false}
		checkStale(t, cases)
	}
	checkStale(t, map[string]staleCase{
		"after a start, an address that serves none": {list(uncertain), clusterScope, flowOf(host, unserved, foreign), false},
		"another endpoint's port on the same pod":    {list(complete), clusterScope, flowOf(host, unserved, "10.244.1.1:54"), false},
	})
}

// As with `fib saddr type local` in the tables: an address that is the node's by a route alone is the node.
func TestTheKernelSaysWhetherAClientIsTheNode(t *testing.T) {
	local := list(split("203.0.113.1:53", permitted{endpointA, endpointB}, permitted{endpointA}))
	for _, scope := range []selection.Scope{clusterScope, podless, onAll} {
		checkStale(t, map[string]staleCase{
			"a client at such an address": {local, scope, flowOf("198.51.100.7:40000", "203.0.113.1:53", "10.244.2.1:53"), false},
		})
	}
	checkStale(t, map[string]staleCase{
		"a client at the next address": {local, clusterScope, flowOf("198.51.100.8:40000", "203.0.113.1:53", "10.244.2.1:53"), true},
	})
}

// TestTheKernelIsAskedOnlyWhereItMatters: not about clients whose endpoint may answer anyway, and not about addresses
// of flows that cannot be the Service's.
func TestTheKernelIsAskedOnlyWhereItMatters(t *testing.T) {
	of := list(nodePortOf(permitted{endpointA}, nil), frontend("10.96.0.10:53", endpointA),
		split("203.0.113.1:53", permitted{endpointA, endpointB}, permitted{endpointA}))
	for name, c := range map[string]struct {
		flow  flow
		scope selection.Scope
		asked int
	}{
		"no frontend of ours":                            {flowOf(host, "203.0.113.1:54", "10.244.1.1:53"), onAll, 0},
		"everybody's endpoint":                           {flowOf(host, "10.96.0.10:53", "10.244.1.1:53"), onAll, 0},
		"nobody's endpoint":                              {flowOf(host, "203.0.113.1:53", foreign), onAll, 0},
		"an endpoint for those inside, a pod":            {flowOf(pod, "203.0.113.1:53", "10.244.2.1:53"), onAll, 0},
		"an endpoint for those inside, and a machine":    {flowOf(host, "203.0.113.1:53", "10.244.2.1:53"), onAll, 1},
		"a node port, where some serve":                  {flowOf(host, served, "10.244.1.1:53"), clusterScope, 0},
		"a node port, where all serve":                   {flowOf(host, served, "10.244.1.1:53"), onAll, 1},
		"a node port's number, translated by a stranger": {flowOf(host, served, foreign), onAll, 0},
	} {
		asked := 0
		_, err := newVerdicts(of, c.scope, func(netip.Addr) (bool, error) { asked++; return false, nil }).isStale(c.flow)
		if asked != c.asked || err != nil {
			t.Errorf("%s: asked %d times, %v; want %d", name, asked, err, c.asked)
		}
	}
}

func TestOnlyFrontendsOfUDPCount(t *testing.T) {
	for _, protocol := range []model.Protocol{model.TCP, model.SCTP} {
		of := frontend("10.96.0.10:53")
		of.Frontend.Protocol = protocol
		v := newVerdicts(list(of), clusterScope, isNodes)
		if len(v.families) != 0 {
			t.Errorf("a frontend of %s makes %v be read", protocol, v.families)
		}
		if stale, err := v.isStale(flowOf(pod, "10.96.0.10:53", "10.244.1.1:53")); stale || err != nil {
			t.Errorf("a UDP flow is stale because of a frontend of %s", protocol)
		}
	}
}

const vip = "203.0.113.1:53"

// restricted returns flows for the load balancer's address, which some clients may dial.
func restricted(ranges string, endpoints ...netip.AddrPort) selection.Flows {
	flows := frontend(vip, endpoints...)
	for text := range strings.FieldsSeq(ranges) {
		flows.Sources = append(flows.Sources, netip.MustParsePrefix(text))
	}
	return flows
}

func TestAFlowIsStaleIfItsClientMayNotDial(t *testing.T) {
	answered := flowOf(host, vip, "10.244.1.1:53")
	checkStale(t, map[string]staleCase{
		"its client is in a range":          {list(restricted("10.0.0.0/8 172.30.0.0/24", endpointA)), clusterScope, answered, false},
		"its client is no longer in any":    {list(restricted("10.0.0.0/8 172.30.0.0/25", endpointA)), clusterScope, answered, true},
		"its client is before all ranges":   {list(restricted("192.0.2.0/24", endpointA)), clusterScope, answered, true},
		"its client is after all ranges":    {list(restricted("10.0.0.0/8", endpointA)), clusterScope, answered, true},
		"ranges are not sorted":             {list(restricted("172.30.0.0/24 10.0.0.0/8", endpointA)), clusterScope, answered, false},
		"there are no ranges":               {list(frontend(vip, endpointA)), clusterScope, answered, false},
		"its client may, its endpoint left": {list(restricted("172.30.0.0/24", endpointB)), clusterScope, answered, true},
		"the frontend moved to a Service with other ranges, which may": {
			list(restricted("10.0.0.0/8", endpointB), restricted("172.30.0.0/24 172.31.0.0/16", endpointA)), clusterScope, answered, false},
		"a range of another Service lies between": {
			list(restricted("172.30.0.128/25", endpointB), restricted("172.30.0.0/16", endpointA)), clusterScope,
			flowOf("172.30.1.1:40000", vip, "10.244.1.1:53"), false},
		"the frontend is gone, and another Service has ranges": {
			list(frontend(vip), restricted("10.0.0.0/8", endpointA)), clusterScope, answered, true},
	})
}
