package selection

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// boundedCodes are the reasons that only load-bounded Services have.
var boundedCodes = []Code{WithinLoadBound, Spillover, NoNearEndpoints, LoadBoundExceeded, NodesUnknown, ShareBelowOneSlot,
	NotSelectedByPlan}

// boundedSetup is a cluster with a load-bounded Service.
type boundedSetup struct {
	change model.Change
	web    model.ObjectName
}

// newBoundedSetup returns a cluster of zones with the given numbers of nodes and endpoints. The nodes are zone-a-0,
// zone-a-1 and so on, the endpoints 10.1.zone.number.
func newBoundedSetup(topology policy.Topology, nodes, endpoints []int) *boundedSetup {
	s := &boundedSetup{web: model.ObjectName{Namespace: "shop", Name: "web"}}
	service := &model.Service{
		Name: s.web, ClusterIPs: parseAddrs("10.96.0.1"), Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}, Topology: topology,
	}
	slice := &model.EndpointSlice{
		Name: model.ObjectName{Namespace: "shop", Name: "web-1"}, Service: s.web, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}},
	}
	s.change = model.Change{
		Services: map[model.ObjectName]*model.Service{s.web: service}, Nodes: map[string]*model.Node{},
		Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}, AllNodes: new(true),
	}
	for z := range nodes {
		name := fmt.Sprintf("zone-%c", 'a'+z)
		for n := range nodes[z] {
			node := fmt.Sprintf("%s-%d", name, n)
			s.change.Nodes[node] = &model.Node{Name: node, Labels: map[string]string{zone: name}}
		}
		for e := range endpoints[z] {
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr: netip.AddrFrom4([4]byte{10, 1, byte(z), byte(e)}),
				Endpoint: model.Endpoint{
					Node: fmt.Sprintf("%s-%d", name, e%max(1, nodes[z])), Zone: name, Ready: true, Serving: true,
				},
			})
		}
	}
	return s
}

func (s *boundedSetup) slice() *model.EndpointSlice {
	return s.change.Slices[model.ObjectName{Namespace: "shop", Name: "web-1"}]
}

// decide returns the decision on a node.
func (s *boundedSetup) decide(test testing.TB, node string) Decision {
	test.Helper()
	cluster := model.NewCluster(node)
	cluster.Apply(s.change)
	decisions := NewPlanner(cluster).Decide(s.web, []model.Family{model.IPv4})
	if len(decisions) != 1 {
		test.Fatalf("%d decisions, want one", len(decisions))
	}
	return decisions[0]
}

var zoneThenAll = []policy.Key{policy.Zone, policy.AnyNode}

func bounded(limit uint64, keys ...policy.Key) policy.Topology {
	return policy.Topology{Keys: keys, MaxLoad: limit}
}

func TestReasonsOfBoundedServices(t *testing.T) {
	keys := bounded(120, zoneThenAll...)
	tests := map[string]struct {
		setup *boundedSetup
		node  string
		tier  string
		want  string
	}{
		"enough near": {
			newBoundedSetup(keys, []int{3, 3, 3}, []int{6, 1, 1}), "zone-a-1", zone,
			`All of this node's connections stay in its topology.kubernetes.io/zone, "zone-a": 6 of 8 endpoints are there, ` +
				`and the expected load of the busiest is 0.93 times the mean; max-load is 120 %.`,
		},
		"too few near": {
			newBoundedSetup(keys, []int{3, 3, 3}, []int{6, 1, 1}), "zone-b-2", "*",
			`45 % of this node's connections stay in its topology.kubernetes.io/zone, "zone-b", and 55 % go to the whole ` +
				`cluster: 1 of 8 endpoints is there for 3 of 9 of the demand. Without the load bound, the expected load of each would be ` +
				`2.67 times the mean; max-load is 120 %.`,
		},
		"no endpoint near": {
			newBoundedSetup(keys, []int{3, 3, 3}, []int{0, 1, 2}), "zone-a-0", "*",
			`No endpoint is in its topology.kubernetes.io/zone, "zone-a"; all of this node's connections go to the whole ` +
				`cluster, most to the least loaded endpoints.`,
		},
		"a hard key": {
			newBoundedSetup(bounded(100, policy.Zone), []int{2, 2}, []int{1, 3}), "zone-b-0", zone,
			`All of this node's connections stay in its topology.kubernetes.io/zone, "zone-b": 3 of 3 endpoints are there, ` +
				`and the expected load of the busiest is 1.00 times the mean; max-load is 100 %.`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			choice := test.setup.decide(t, test.node).Selection.Cluster
			if got := choice.Reason.Sentence(); got != test.want {
				t.Errorf("reason is\n%s\nwant\n%s", got, test.want)
			}
			if choice.Tier != test.tier {
				t.Errorf("tier is %s, want %s", choice.Tier, test.tier)
			}
		})
	}
}

// TestReasonNamesAMissingLabel: the reason names a key's label if the node lacks it, but not if the node merely has no
// endpoints.
func TestReasonNamesAMissingLabel(t *testing.T) {
	for name, test := range map[string]struct {
		node   string
		change func(labels map[string]string)
		keys   []policy.Key
		want   string
	}{
		"no label": {"zone-b-0", func(labels map[string]string) { delete(labels, zone) }, zoneThenAll,
			"This node has no label topology.kubernetes.io/zone; all of this node's connections go to the whole cluster, "},
		"an empty label": {"zone-b-0", func(labels map[string]string) { labels[zone] = "" }, zoneThenAll,
			`No endpoint is in its topology.kubernetes.io/zone, ""; all of this node's connections go to `},
		"another label": {"zone-b-0", func(map[string]string) {}, zoneThenAll,
			`No endpoint is in its topology.kubernetes.io/zone, "zone-b"; all of this node's connections go to `},
		"no endpoint on the node": {"zone-b-0", func(map[string]string) {}, []policy.Key{policy.Hostname, policy.AnyNode},
			"No endpoint is on this node; all of this node's connections go to "},
		"an endpoint on the node": {"zone-a-0", func(map[string]string) {}, []policy.Key{policy.Hostname, policy.AnyNode},
			"All of this node's connections stay on this node: "},
	} {
		t.Run(name, func(t *testing.T) {
			setup := newBoundedSetup(bounded(200, test.keys...), []int{3, 3, 3}, []int{3, 0, 3})
			test.change(setup.change.Nodes[test.node].Labels)
			if got := setup.decide(t, test.node).Selection.Cluster.Reason.Sentence(); !strings.HasPrefix(got, test.want) {
				t.Errorf("got\n%s, want\n%s", got, test.want)
			}
		})
	}
}

// TestTheBoundHoldsInSlots checks each endpoint's load from the slots of all nodes.
func TestTheBoundHoldsInSlots(t *testing.T) {
	setup := newBoundedSetup(bounded(120, zoneThenAll...), []int{10, 10, 10, 10}, []int{40, 1, 1, 1})
	loads := map[netip.AddrPort]float64{}
	for node := range setup.change.Nodes {
		choice := setup.decide(t, node).Selection.Cluster
		sum := 0
		for i := range choice.Endpoints {
			sum += slotsAt(choice, i)
		}
		for i, endpoint := range choice.Endpoints {
			loads[endpoint.Addr] += float64(slotsAt(choice, i)) / float64(sum)
		}
	}
	mean := 40.0 / 43
	for endpoint, load := range loads {
		if load > mean*1.2*1.03 {
			t.Errorf("%s has %.2f times the mean load", endpoint, load/mean)
		}
	}
	if len(loads) != 43 {
		t.Errorf("%d endpoints are used, want all 43", len(loads))
	}
}

func slotsAt(choice Choice, i int) int {
	if choice.Slots == nil {
		return 1
	}
	return choice.Slots[i]
}

func TestWithoutAllNodesTheFirstKeyWins(t *testing.T) {
	setup := newBoundedSetup(bounded(120, zoneThenAll...), []int{3, 3, 3}, []int{6, 1, 1})
	setup.change.AllNodes = nil
	choice := setup.decide(t, "zone-b-0").Selection.Cluster
	if choice.Reason.Code != NodesUnknown || choice.Tier != zone || len(choice.Endpoints) != 1 || choice.Slots != nil {
		t.Errorf("got %+v", choice)
	}
}

// TestNamedClientsAreTheDemand: all clients are in one zone, so some connections spill over to the endpoints of other
// zones.
func TestNamedClientsAreTheDemand(t *testing.T) {
	topology := bounded(120, zoneThenAll...)
	topology.Clients = []string{"shop/front"}
	setup := newBoundedSetup(topology, []int{3, 3, 3}, []int{3, 3, 3})
	front := &model.EndpointSlice{
		Name: model.ObjectName{Namespace: "shop", Name: "front-1"}, Service: model.ObjectName{Namespace: "shop", Name: "front"},
	}
	for n := range 3 {
		front.Endpoints = append(front.Endpoints, model.SliceEndpoint{
			Addr:     netip.AddrFrom4([4]byte{10, 2, 0, byte(n)}),
			Endpoint: model.Endpoint{Node: fmt.Sprintf("zone-b-%d", n), Ready: true},
		})
	}
	setup.change.Slices[front.Name] = front
	choice := setup.decide(t, "zone-b-0").Selection.Cluster
	if choice.Reason.Code != Spillover {
		t.Fatalf("got %s: %s", choice.Reason.Code, choice.Reason.Sentence())
	}
	if load := choice.Reason.Load; load.Demand != 3 || load.AllDemand != 3 || load.Unbounded != 3000 || load.NearShare.String() != "40 %" {
		t.Errorf("got %+v", *load)
	}
}

// TestSessionAffinityHasStickyOnlyEndpoints: with session affinity, clients keep endpoints that have no slot on this
// node.
func TestSessionAffinityHasStickyOnlyEndpoints(t *testing.T) {
	setup := newBoundedSetup(bounded(120, zoneThenAll...), []int{3, 3, 3}, []int{6, 3, 3})
	setup.change.Services[setup.web].AffinityTimeout = 1
	choice := setup.decide(t, "zone-a-0").Selection.Cluster
	if len(choice.Endpoints) != 6 || len(choice.StickyOnly) != 12 {
		t.Errorf("%d endpoints have slots, and %d only keep clients; want 6 and 12", len(choice.Endpoints), len(choice.StickyOnly))
	}
}

// TestBoundedServicesInRandomClusters: in any cluster, each endpoint is either chosen or excluded with a reason. All
// reasons occur.
func TestBoundedServicesInRandomClusters(t *testing.T) {
	seen := map[Code]bool{}
	keyLists := [][]policy.Key{
		zoneThenAll, {policy.Hostname, policy.Zone, policy.AnyNode}, {policy.Zone}, {rack, policy.Zone}, {rack, policy.AnyNode},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		setup := newBoundedSetup(bounded(100+random.Uint64N(200), keyLists[random.IntN(len(keyLists))]...),
			[]int{1 + random.IntN(4), random.IntN(4), random.IntN(30)}, []int{random.IntN(4), random.IntN(3), random.IntN(40)})
		for _, node := range setup.change.Nodes {
			if random.IntN(3) > 0 {
				node.Labels[rack] = fmt.Sprint(random.IntN(3))
			}
			if random.IntN(8) == 0 {
				delete(node.Labels, zone)
			}
		}
		for i := range setup.slice().Endpoints {
			endpoint := &setup.slice().Endpoints[i]
			if random.IntN(4) == 0 {
				endpoint.Ready, endpoint.Terminating = false, random.IntN(2) == 0
			}
			if random.IntN(3) == 0 {
				endpoint.Zone = ""
			}
		}
		if random.IntN(10) == 0 {
			setup.change.AllNodes = nil
		}
		checkBounded(t, setup.decide(t, "zone-a-0"), seen)
	}
	for _, code := range boundedCodes {
		if !seen[code] {
			t.Errorf("reason %s does not occur in any random cluster", code)
		}
	}
}

func checkBounded(t *testing.T, decision Decision, seen map[Code]bool) {
	t.Helper()
	choice := decision.Selection.Cluster
	seen[choice.Reason.Code] = true
	checkChoice(t, decision.Endpoints, &choice)
	checkTierOrder(t, decision)
	if choice.Slots != nil && (len(choice.Slots) != len(choice.Endpoints) || slices.Min(choice.Slots) < 1 || slices.Max(choice.Slots) < 2) {
		t.Errorf("slots %v for %d endpoints", choice.Slots, len(choice.Endpoints))
	}
	excluded := decision.Exclusions()
	for _, exclusion := range excluded {
		seen[exclusion.Reason.Code] = true
		if sentence := exclusion.Reason.Sentence(); !strings.HasSuffix(sentence, ".") || strings.ContainsAny(sentence, "{}") {
			t.Errorf("sentence of %s is %q", exclusion.Reason.Code, sentence)
		}
	}
	if len(excluded)+len(choice.Endpoints) != len(decision.Endpoints) {
		t.Errorf("%d endpoints are chosen and %d excluded, of %d", len(choice.Endpoints), len(excluded), len(decision.Endpoints))
	}
	plain := *decision.Service
	plain.Topology.MaxLoad = 0
	unbounded := Select(&plain, false, decision.Endpoints, decision.Viewpoint).Cluster
	if (len(unbounded.Endpoints) == 0) != (len(choice.Endpoints) == 0) {
		t.Errorf("with the bound %d endpoints are chosen, without it %d", len(choice.Endpoints), len(unbounded.Endpoints))
	}
}

// TestClientsAreRecountedWhenTheyChange: clients are counted again after their endpoints changed, also if no Service
// named them at that time.
func TestClientsAreRecountedWhenTheyChange(t *testing.T) {
	topology := bounded(120, zoneThenAll...)
	setup := newBoundedSetup(topology, []int{3, 3, 3}, []int{3, 3, 3})
	cluster := model.NewCluster("zone-b-0")
	planner := NewPlanner(cluster)
	apply := func(change model.Change) {
		cluster.Apply(change)
		planner.ApplyChange(change)
	}
	apply(setup.change)
	moveClients := func(zone string) model.Change {
		slice := &model.EndpointSlice{
			Name: model.ObjectName{Namespace: "shop", Name: "front-1"}, Service: model.ObjectName{Namespace: "shop", Name: "front"},
		}
		for n := range 3 {
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr: netip.AddrFrom4([4]byte{10, 2, 0, byte(n)}), Endpoint: model.Endpoint{Node: fmt.Sprintf("zone-%s-%d", zone, n), Ready: true},
			})
		}
		return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}
	}
	nameClients := func(clients ...string) model.Change {
		service := *setup.change.Services[setup.web]
		service.Topology.Clients = clients
		return model.Change{Services: map[model.ObjectName]*model.Service{setup.web: &service}}
	}
	for _, step := range []struct {
		desc   string
		change model.Change
		want   Code
	}{
		{"no client is named", moveClients("b"), WithinLoadBound},
		{"clients in this zone", nameClients("shop/front"), Spillover},
		{"the clients move to another zone", moveClients("c"), WithinLoadBound},
		{"no client is named any more", nameClients(), WithinLoadBound},
		{"the clients move back", moveClients("b"), WithinLoadBound},
		{"the clients are named again", nameClients("shop/front"), Spillover},
	} {
		apply(step.change)
		got := planner.Decide(setup.web, []model.Family{model.IPv4})[0].Selection.Cluster.Reason
		if got.Code != step.want {
			t.Errorf("%s: %s, want %s: %s", step.desc, got.Code, step.want, got.Sentence())
		}
	}
}
