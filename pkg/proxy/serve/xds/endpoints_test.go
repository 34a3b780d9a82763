package xds

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func tierOf(slots []int, zones ...string) selection.Tier {
	tier := selection.Tier{Slots: slots}
	for i, zone := range zones {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080)
		tier.Endpoints = append(tier.Endpoints, model.PortEndpoint{Addr: addr, Endpoint: model.Endpoint{Zone: zone}})
	}
	return tier
}

// TestSharesMatchTheKernel: a client chooses a locality by its weight, and each of its endpoints equally often. The
// result must match the slots of the kernel's table.
func TestSharesMatchTheKernel(t *testing.T) {
	random := rand.New(rand.NewPCG(36, 1))
	for range 1000 {
		tiers := []selection.Tier{}
		for range 1 + random.IntN(3) {
			var zones []string
			var slots []int
			for range 1 + random.IntN(12) {
				zones = append(zones, []string{"a", "b", ""}[random.IntN(3)])
				slots = append(slots, 1+random.IntN(4))
			}
			if random.IntN(2) == 0 {
				slots = nil
			}
			tiers = append(tiers, tierOf(slots, zones...))
		}
		checkShares(t, tiers, localitiesOf(tiers))
	}
}

func checkShares(t *testing.T, tiers []selection.Tier, localities []locality) {
	t.Helper()
	type id struct {
		priority      int
		zone, subZone string
	}
	seen := map[id]bool{}
	got := make([]map[netip.AddrPort]uint32, len(tiers))
	for i := range localities {
		l := &localities[i]
		if key := (id{l.priority, l.zone, l.subZone()}); seen[key] {
			t.Errorf("duplicate locality %+v", key)
		} else {
			seen[key] = true
		}
		if got[l.priority] == nil {
			got[l.priority] = map[netip.AddrPort]uint32{}
		}
		for _, endpoint := range l.endpoints {
			got[l.priority][endpoint] += l.slots
		}
	}
	for priority, tier := range tiers {
		want := map[netip.AddrPort]uint32{}
		for i, endpoint := range tier.Endpoints {
			want[endpoint.Addr] = 1
			if tier.Slots != nil {
				want[endpoint.Addr] = uint32(tier.Slots[i])
			}
		}
		if diff := cmp.Diff(want, got[priority], cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("weights in tier %d (-want +got):\n%s", priority, diff)
		}
	}
}

func TestAnAssignmentHasTheFirstFamilyAndTCP(t *testing.T) {
	cluster := model.NewCluster("node-1")
	name := nameOf("both")
	service := &model.Service{Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.96.0.1")},
		Ports: []model.ServicePort{{Name: "dns", Protocol: model.UDP, Port: 53}, {Name: "dns-tcp", Protocol: model.TCP, Port: 53}}}
	change := model.Change{Services: map[model.ObjectName]*model.Service{name: service}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for i, addr := range []string{"10.0.0.1", "fd00::a"} {
		endpoint := netip.MustParseAddr(addr)
		slice := &model.EndpointSlice{Name: nameOf(addr), Service: name, Family: model.FamilyOf(endpoint),
			Ports:     []model.SlicePort{{Name: "dns", Protocol: model.UDP, Port: 1}, {Name: "dns-tcp", Protocol: model.TCP, Port: uint16(2 + i)}},
			Endpoints: []model.SliceEndpoint{{Addr: endpoint, Endpoint: model.Endpoint{Ready: true, Serving: true}}}}
		change.Slices[slice.Name] = slice
	}
	cluster.Apply(change)
	for _, test := range []struct {
		families []model.Family
		want     string
	}{
		{model.Families, "[fd00::a]:3"}, {[]model.Family{model.IPv6}, "[fd00::a]:3"}, {[]model.Family{model.IPv4}, "10.0.0.1:2"},
	} {
		port, ok := newService(selection.NewPlanner(cluster).Decide(name, test.families)).port(53)
		want := newPort(53, []locality{{slots: 1, endpoints: []netip.AddrPort{netip.MustParseAddrPort(test.want)}}})
		if !ok || port != want {
			t.Errorf("families %v: %t, %q, want %q", test.families, ok, port.localities, want.localities)
		}
	}
}

// TestABoundedServiceHasItsSlots: clients get the kernel's slots, and after them the endpoints without slots.
func TestABoundedServiceHasItsSlots(t *testing.T) {
	cluster := newTestCluster()
	cluster.addService("web", "zone *", []uint16{80}, "1@node-1/a 2@node-2/b 3@node-2/b 4@node-2/b")
	service := *cluster.cluster.Service(nameOf("web"))
	service.Topology = policy.Topology{Keys: keysOf("zone *"), MaxLoad: 110}
	cluster.apply(model.Change{
		Services: map[model.ObjectName]*model.Service{service.Name: &service}, AllNodes: new(true),
		Nodes: map[string]*model.Node{
			"node-1": {Name: "node-1", Labels: map[string]string{string(policy.Zone): "a"}},
			"node-2": {Name: "node-2", Labels: map[string]string{string(policy.Zone): "b"}},
		},
	})
	decision := cluster.planner.Decide(service.Name, model.Families)[0]
	if decision.Selection.Cluster.Slots == nil {
		t.Fatalf("the kernel's table has no slots: %+v", decision.Selection.Cluster)
	}
	localities := localitiesOf(decision.Tiers())
	checkShares(t, decision.Tiers(), localities)
	if port, _ := cluster.table.find(portRef{service.Name, 80}); port != newPort(80, localities) {
		t.Errorf("clients get %q", port.localities)
	}
}
