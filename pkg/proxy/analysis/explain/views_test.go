package explain_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// The indexes of the Services of manyNodes with hints for zones, and with hints for nodes. The former also has a Local
// policy and external addresses.
const zoneHintedIndex, nodeHintedIndex = 7, 8

// manyNodes returns the state of a cluster with everything that a view caches for other nodes: bounds by several lists
// of keys, named clients, measured demand, and demoted endpoints.
func manyNodes(nodes int, random *rand.Rand) model.Change {
	all := true
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{},
		Nodes: map[string]*model.Node{}, Demands: map[model.ObjectName]*model.Demand{}, Demotions: map[model.DemotionKey]*model.Demotion{},
		AllNodes: &all, DemandState: new(model.DemandActive),
	}
	nameOf := func(i int) string { return fmt.Sprintf("node-%04d", i) }
	for i := range nodes {
		change.Nodes[nameOf(i)] = &model.Node{
			Name: nameOf(i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})},
			Labels: map[string]string{string(policy.Zone): fmt.Sprintf("zone-%d", i%3), "example.com/rack": fmt.Sprintf("rack-%d", i/4)},
		}
		switch labels := change.Nodes[nameOf(i)].Labels; {
		case i == 1:
			labels["example.com/some"] = ""
		case i%3 == 0:
			labels["example.com/some"] = fmt.Sprint("some-", i)
		case i%5 == 0:
			labels[policy.DemandLabel] = "10"
		}
	}
	change.Demotions[model.DemotionKey{Node: nameOf(1), Reason: model.Evacuated}] = &model.Demotion{Reason: model.Evacuated}
	zoneKeys, rackKeys := []policy.Key{policy.Zone, policy.AnyNode}, []policy.Key{"example.com/rack", policy.Zone, policy.AnyNode}
	for serviceIndex, topology := range []policy.Topology{
		{}, {Keys: rackKeys}, {Keys: zoneKeys, MaxLoad: 120}, {Keys: rackKeys, MaxLoad: 150, Clients: []string{"shop/s0"}},
		{Keys: []policy.Key{policy.Hostname, policy.AnyNode}, MaxLoad: 110}, {Keys: zoneKeys, MaxLoad: 120, Measured: true},
		{Keys: []policy.Key{policy.Hostname, policy.Zone}}, {}, {}, {Keys: []policy.Key{policy.Hostname, "example.com/some"}},
	} {
		name := model.ObjectName{Namespace: "shop", Name: fmt.Sprintf("s%d", serviceIndex)}
		change.Services[name] = &model.Service{
			Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(serviceIndex + 1)})}, Topology: topology,
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: uint16(30000 + serviceIndex)}},
		}
		slice := &model.EndpointSlice{
			Name: name, Service: name, Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		}
		for e := range max(6, nodes/5) {
			sliceEndpoint := endpoint(fmt.Sprintf("10.%d.%d.%d", serviceIndex, e/250, e%250), nameOf(random.IntN(nodes)), random.IntN(5) > 0)
			switch serviceIndex {
			case zoneHintedIndex:
				sliceEndpoint.HintZones = []string{fmt.Sprintf("zone-%d", random.IntN(2))}
			case nodeHintedIndex:
				sliceEndpoint.HintNodes = []string{sliceEndpoint.Node}
			}
			slice.Endpoints = append(slice.Endpoints, sliceEndpoint)
		}
		if serviceIndex == zoneHintedIndex {
			service := change.Services[name]
			service.ExternalTrafficLocal, service.HealthCheckNodePort = true, 32000
			service.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
			service.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.0.9"), netip.MustParseAddr("198.51.100.2")}
			service.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.0.0/28")}
			change.Services[model.ObjectName{Namespace: "shop", Name: "s0"}].Ports[0].NodePort = service.Ports[0].Port
		}
		change.Slices[name] = slice
		if topology.Measured {
			change.Demands[name] = &model.Demand{Zones: map[string]uint32{"zone-0": 700, "zone-1": 200, "zone-2": 100}, ObservedAt: time.Unix(0, 0)}
		}
	}
	return change
}

// TestViewEqualsTheNodesReport: the caches for other nodes change no explanation.
func TestViewEqualsTheNodesReport(t *testing.T) {
	for seed := range uint64(8) {
		change := manyNodes(30, rand.New(rand.NewPCG(seed, 0)))
		views := explain.NewViews(change, model.NodePortAddresses{Primary: true}, explain.Query{})
		for name, node := range change.Nodes {
			uncached := explain.ClusterView(change, name, model.NodePortAddresses{Primary: true})
			want := explain.Clients{}.Ports(uncached, explain.Query{})
			if diff := cmp.Diff(want, views.Ports(explain.Clients{}, node)); diff != "" {
				t.Fatalf("seed %d, %s: (-without a cache +view):\n%s", seed, name, diff)
			}
		}
	}
}

// TestNodesThatDecideAlikeAreExplainedOnce: each node is in one group, and its report is the same as that of the first
// node of its group, except for its name and the values that the group lists as differences; then the numbers of
// endpoints by reason are the same.
func TestNodesThatDecideAlikeAreExplainedOnce(t *testing.T) {
	countByEquality := map[bool]int{}
	for seed := range uint64(6) {
		change := manyNodes(90, rand.New(rand.NewPCG(seed, 7)))
		if seed%2 > 0 { // many zones, and nodes in none
			for i, node := range sorted(change.Nodes) {
				if node.Labels[string(policy.Zone)] = fmt.Sprintf("zone-%d", i%20); i%7 == 0 {
					delete(node.Labels, string(policy.Zone))
				}
			}
		}
		views := explain.NewViews(change, model.NodePortAddresses{Primary: true}, explain.Query{})
		want, got := map[string]explain.PortReport{}, map[string]int{}
		for _, node := range change.Nodes {
			for _, port := range views.Ports(explain.Clients{}, node) {
				want[node.Name+" "+port.Service] = port
			}
		}
		for ports := range views.All(sorted(change.Nodes), clientsOf) {
			for _, port := range ports {
				alike := explain.Alike{}
				if port.Alike != nil {
					alike = *port.Alike
				}
				countByEquality[alike.Differences == ""] += len(alike.Nodes)
				for _, name := range append([]string{port.Node}, alike.Nodes...) {
					got[name+" "+port.Service]++
					if diff := cmp.Diff(summary(want[name+" "+port.Service], alike), summary(port, alike)); diff != "" {
						t.Fatalf("seed %d: %s on %s differs from %s (%q): (-want +got):\n%s", seed, port.Service, name, port.Node, alike.Differences, diff)
					}
				}
			}
		}
		for nodeAndService := range want {
			if got[nodeAndService] != 1 {
				t.Errorf("seed %d: %s is explained %d times", seed, nodeAndService, got[nodeAndService])
			}
		}
	}
	if countByEquality[true] < 100 || countByEquality[false] < 100 {
		t.Errorf("too few reports are the same (true), or differ as described (false): %v", countByEquality)
	}
}

// summary returns what nodes that decide alike have in common.
func summary(port explain.PortReport, alike explain.Alike) string {
	name := port.Node
	port.Node, port.Alike = "", nil
	port.Cluster.Message = strings.ReplaceAll(port.Cluster.Message, name, "NODE")
	port.Cluster.Shares = slices.Clone(port.Cluster.Shares)
	for i := range port.Cluster.Shares {
		port.Cluster.Shares[i].Value = strings.ReplaceAll(port.Cluster.Shares[i].Value, name, "NODE")
	}
	if alike.Differences != "" {
		reasons := map[string]int{}
		for _, e := range port.Excluded {
			reasons[e.Reason]++
		}
		isRounded := strings.Contains(alike.Differences, "slots")
		if port.Local != nil {
			port.Local = new(*port.Local)
		}
		for _, choice := range []*explain.Choice{&port.Cluster, port.Local} {
			if choice != nil {
				reasons["slots"] += len(choice.Endpoints)
				choice.Slots, choice.Endpoints = nil, nil
				choice.Message = choice.Message[:strings.IndexAny(choice.Message+",", ",:")]
				choice.Shares = slices.Clone(choice.Shares)
				for i := range choice.Shares {
					choice.Shares[i].Value = ""
					if isRounded {
						choice.Shares[i].Used = 0
					}
				}
			}
		}
		if isRounded { // more or fewer endpoints have a slot
			reasons, port.Message, port.Traffic = nil, "", nil
		}
		port.Excluded, port.Load = nil, nil
		for i := range port.NextTiers {
			port.NextTiers[i].Endpoints = nil
		}
		if isRounded {
			port.NextTiers = nil
		}
		port.Warnings = append(slices.Clone(port.Warnings), fmt.Sprint(reasons))
	}
	text, err := json.MarshalIndent(port, "", " ")
	if err != nil {
		panic(err)
	}
	return string(text)
}

func sorted(nodes map[string]*model.Node) (list []*model.Node) {
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		list = append(list, nodes[name])
	}
	return list
}

func clientsOf(*model.Node) explain.Clients { return explain.Clients{} }

// TestViewsOfTwiceAsManyNodesTakeTwiceTheWork: the work and the output in JSON are about doubled for twice as many
// nodes and endpoints. If the cost of each node were proportional to the number of nodes or endpoints, they would be
// four times as much. The text grows by less than half.
func TestViewsOfTwiceAsManyNodesTakeTwiceTheWork(t *testing.T) {
	cost := func(nodes int, format string) (allocations float64, written, lines int) {
		change := manyNodes(nodes, rand.New(rand.NewPCG(1, 1)))
		allocations = testing.AllocsPerRun(1, func() {
			var page strings.Builder
			stream := explain.NewStream(&page, format)
			for ports := range explain.NewViews(change, model.NodePortAddresses{}, explain.Query{}).All(sorted(change.Nodes), clientsOf) {
				if format == "text" {
					explain.Condense(ports, true)
				}
				if err := stream.Write(ports); err != nil {
					t.Fatal(err)
				}
			}
			written, lines = page.Len(), strings.Count(page.String(), "\n")
		})
		return allocations, written, lines
	}
	for format, maxGrowth := range map[string]float64{"text": 1.5, "json": 2.3} {
		few, bytes, lines := cost(500, format)
		moreAllocations, moreBytes, moreLines := cost(1000, format)
		t.Logf("%s: 500 nodes: %.0f allocations, %d bytes, %d lines; 1000: %.0f, %d, %d", format, few, bytes, lines, moreAllocations,
			moreBytes, moreLines)
		if moreAllocations > 2.3*few || float64(moreBytes) > maxGrowth*float64(bytes) || float64(moreLines) > maxGrowth*float64(lines) {
			t.Errorf("%s: %.0f allocations, %d bytes and %d lines for 500 nodes, %.0f, %d and %d for 1000",
				format, few, bytes, lines, moreAllocations, moreBytes, moreLines)
		}
	}
}
