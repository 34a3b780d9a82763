package ruleset_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func manyAddrs(first string, count int) []netip.Addr {
	addr, addrs := netip.MustParseAddr(first), make([]netip.Addr, count)
	for i := range addrs {
		addrs[i], addr = addr, addr.Next()
	}
	return addrs
}

// dedicatedMapsIn returns the names of the dedicated maps of ports.
func dedicatedMapsIn(tables *ruleset.Tables) []string {
	return slices.DeleteFunc(tables.Objects(model.IPv4).Sets, func(name string) bool { return !strings.Contains(name, "endpoints-") })
}

// broad returns a Service with these numbers of addresses and endpoints.
func broad(addresses, slots int) ruleset.Service {
	port := portOf("broad", "10.96.0.1")
	port.Frontends = nil
	for _, addr := range manyAddrs("198.18.0.0", addresses) {
		port.Frontends = append(port.Frontends, ruleset.Frontend{
			Frontend: model.Frontend{Addr: addr, Protocol: model.TCP, Port: 80}, Class: ruleset.BalanceClass(slots), External: true,
		})
	}
	for _, addr := range manyAddrs("10.244.0.1", slots) {
		port.Cluster = append(port.Cluster, netip.AddrPortFrom(addr, 8080))
	}
	return serviceOf(port)
}

// stickyBroad is broad with affinity and frontends of three kinds: one is kept on this node, which has some of the
// endpoints, one only for clients outside, and the rest use all endpoints.
func stickyBroad() ruleset.Service {
	const slots, local = 40, 20
	service := broad(200, slots)
	port := &service.Ports[0]
	port.Affinity, port.Local = time.Hour, port.Cluster[:local]
	port.Frontends[0].Class, port.Frontends[0].Local = ruleset.SplitClass(local, slots), true
	port.Frontends[1].Class, port.Frontends[1].External, port.Frontends[1].Local = ruleset.BalanceClass(local), false, true
	return service
}

// cleanUpAndCount cleans up after a plan, and returns how many elements the plan and the cleanup added and deleted.
func cleanUpAndCount(r *rig, plan *ruleset.Plan) (added, deleted int) {
	added, deleted = count(plan, ruleset.Add), count(plan, ruleset.Delete)
	for batch := r.mirror.Cleanup(1 << 20); len(batch.Ops) > 0; batch = r.mirror.Cleanup(1 << 20) {
		deleted += batch.Count(model.IPv4, ruleset.Delete)
		if err := r.Apply(batch); err != nil {
			panic(err)
		}
		r.mirror.CleanupDone()
	}
	return added, deleted
}

// TestADedicatedMapCostsASum: the elements of a dedicated map are as many as frontends and endpoints together, and an
// endpoint costs one element.
func TestADedicatedMapCostsASum(t *testing.T) {
	const addresses, slots = 1000, 2000
	r := start(t)
	for _, step := range []struct {
		title          string
		service        ruleset.Service
		added, deleted int
	}{
		// For each frontend its class and that it is external; and once the dispatch entry of the class and the ClusterIP.
		{"it is added", broad(addresses, slots), slots + 2*addresses + 2, 0},
		{"nothing changes", broad(addresses, slots), 0, 0},
		{"an endpoint is removed", broad(addresses, slots-1), 0, 1},
		{"two endpoints are added", broad(addresses, slots+1), 2, 0},
		{"an address is removed", broad(addresses-1, slots+1), 0, 2},
		{"few endpoints remain", broad(addresses-1, 1), 0, slots},
		{"few addresses remain, too", broad(100, 1), 100 + 100, 2*(addresses-1) - 100 + 1},
		{"many of both again", broad(addresses, slots), slots + addresses + (addresses - 100) + 1, 100 + 100},
		{"it is deleted", emptyService("broad"), 0, 2*addresses + 2},
	} {
		plan := r.change(t, step.service)
		if added, deleted := cleanUpAndCount(r, plan); added != step.added || deleted != step.deleted {
			t.Errorf("%s: %d elements added and %d deleted, want %d and %d", step.title, added, deleted, step.added, step.deleted)
		}
		var fresh ruleset.Tables
		_, full := ruleset.PlanFullSync(bothFamilies, []ruleset.Service{r.mirror.Service(step.service.Name)}, initialNodeState, nil)
		mustApply(t, &fresh, full.Batch)
		if diff := cmp.Diff(text(t, &fresh), text(t, &r.Tables)); diff != "" {
			t.Fatalf("%s: tables (-full sync +change):\n%s", step.title, diff)
		}
	}
}

// TestADedicatedMapHasEverySlotThatIsPicked: at each step of a change a chain picks among the slots of its map.
func TestADedicatedMapHasEverySlotThatIsPicked(t *testing.T) {
	r := start(t, broad(200, 40))
	check := func(when string, slots int) {
		t.Helper()
		set := ruleset.Set{Name: "endpoints-default/broad/tcp/http"}
		elements, err := r.Elements(model.IPv4, set)
		if err != nil || len(elements) < slots {
			t.Errorf("%s: %d slots, want %d at least (%v)", when, len(elements), slots, err)
		}
		pick := fmt.Sprintf("numgen random mod %d offset", slots)
		if !strings.Contains(text(t, &r.Tables), pick) {
			t.Errorf("%s: no chain picks one of %d slots", when, slots)
		}
	}
	for _, slots := range []int{41, 39} {
		plan := r.plan(broad(200, slots))
		mustApply(t, &r.Tables, plan.Prerequisites)
		check("after the prerequisites", slots)
		mustApply(t, &r.Tables, plan.Batch)
		r.mirror.Accept(plan)
		check("before the cleanup", slots)
		r.cleanUp(t)
		check("after the cleanup", slots)
	}
}

// TestDedicatedChains: dedicated chains use the map directly, because no other frontend has their class.
func TestDedicatedChains(t *testing.T) {
	const translate = "meta l4proto tcp dnat ip to meta priority map @endpoints-default/broad/tcp/http"
	const outside = "ip saddr != 10.244.0.0/16 fib saddr type != local "
	port := stickyBroad().Ports[0]
	port.Affinity = 0
	got := map[string][]string{}
	for _, chain := range port.Chains(bothFamilies) {
		got[chain.Name] = rulesOf(chain)
	}
	cluster, local := pickSlot(40, ruleset.ClusterSlot), pickSlot(20, ruleset.LocalSlot)
	want := map[string][]string{
		"lb-default/broad/tcp/http":          {cluster, translate},
		"lb-default/broad/tcp/http/local":    {local, translate},
		"lb-default/broad/tcp/http/external": {outside + local + " " + translate, cluster, translate},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
	port.Local = nil
	port.Frontends[0].Class = ruleset.SplitClass(0, 40)
	chains := port.Chains(bothFamilies)
	if got, want := rulesOf(chains[len(chains)-1]), []string{outside + "drop", cluster, translate}; !slices.Equal(got, want) {
		t.Errorf("without local slots the rules are %q, want %q", got, want)
	}
}

func pickSlot(slots int, first uint32) string {
	return fmt.Sprintf("meta priority set numgen random mod %d offset %d", slots, first)
}

// TestStickyDedicatedChains: these chains pick a number, which the affinity chain sends to its endpoint. For clients
// outside they then return: otherwise they would pick again.
func TestStickyDedicatedChains(t *testing.T) {
	const number = "meta priority set meta priority map @sticky-endpoints-default/broad/tcp/http"
	const outside = "ip saddr != 10.244.0.0/16 fib saddr type != local "
	service := stickyBroad()
	chainsOf := func() map[string][]string {
		port, chains := withNumbers(t, service).Ports[0], map[string][]string{}
		for _, chain := range port.Chains(bothFamilies) {
			if strings.Contains(chain.Name, "/") {
				chains[chain.Name] = rulesOf(chain)
			}
		}
		return chains
	}
	cluster, local := pickSlot(40, ruleset.ClusterSlot), pickSlot(20, ruleset.LocalSlot)
	want := map[string][]string{
		"sticky-lb-default/broad/tcp/http":          {cluster, number},
		"sticky-lb-default/broad/tcp/http/local":    {local, number},
		"sticky-lb-default/broad/tcp/http/external": {outside + local + " " + number + " return", cluster, number},
	}
	if diff := cmp.Diff(want, chainsOf()); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
	service.Ports[0].Local, service.Ports[0].Frontends[0].Class = nil, ruleset.SplitClass(0, 40)
	service.Ports[0].Frontends[1].Class = ruleset.DropClass
	want = map[string][]string{
		"sticky-lb-default/broad/tcp/http":          {cluster, number},
		"sticky-lb-default/broad/tcp/http/external": {outside + "drop", cluster, number},
	}
	if diff := cmp.Diff(want, chainsOf()); diff != "" {
		t.Errorf("chains without local slots (-want +got):\n%s", diff)
	}
}

// TestAStickyDedicatedMapCostsASum, and an endpoint costs a slot and a number in each view.
func TestAStickyDedicatedMapCostsASum(t *testing.T) {
	const addresses, slots = 1000, 200
	sticky := func(addresses, slots int) ruleset.Service {
		service := broad(addresses, slots)
		service.Ports[0].Affinity = time.Hour
		return service
	}
	r := start(t)
	for _, step := range []struct {
		title          string
		service        ruleset.Service
		added, deleted int
	}{
		// For each frontend its class, that of a client without a stored endpoint, the number of its port, and that it is
		// external; for each endpoint its slot and its number; and once the dispatch entries of two classes and the
		// ClusterIP.
		{"it is added", sticky(addresses, slots), 2*slots + 4*addresses + 3, 0},
		{"nothing changes", sticky(addresses, slots), 0, 0},
		{"an endpoint is removed", sticky(addresses, slots-1), 0, 2},
		{"two endpoints are added", sticky(addresses, slots+1), 4, 0},
		{"an address is removed", sticky(addresses-1, slots+1), 0, 4},
		{"without affinity: slots of another map, another class", broad(addresses-1, slots+1),
			slots + 1 + addresses - 1 + 1, 3*(addresses-1) + 2 + slots + 1},
		{"with affinity again", sticky(addresses-1, slots+1),
			2*(slots+1) + 3*(addresses-1) + 2, addresses - 1 + 1},
		{"it is deleted", emptyService("broad"), 0, 4*(addresses-1) + 3 + slots + 1},
	} {
		plan := r.change(t, step.service)
		if added, deleted := cleanUpAndCount(r, plan); added != step.added || deleted != step.deleted {
			t.Errorf("%s: %d elements added and %d deleted, want %d and %d", step.title, added, deleted, step.added, step.deleted)
		}
		checkNumbers(t, r)
		var fresh ruleset.Tables
		found := numbersInUse(&r.Tables)
		_, full := ruleset.PlanFullSync(bothFamilies, []ruleset.Service{r.mirror.Service(step.service.Name)}, initialNodeState, found)
		mustApply(t, &fresh, full.Batch)
		if diff := cmp.Diff(text(t, &fresh), text(t, &r.Tables)); diff != "" {
			t.Fatalf("%s: tables (-full sync +change):\n%s", step.title, diff)
		}
		want := []string{"endpoints-default/broad/tcp/http"}
		if len(step.service.Ports) == 0 {
			want = []string{}
		} else if step.service.Ports[0].Affinity > 0 {
			want = []string{"sticky-endpoints-default/broad/tcp/http"}
		}
		if diff := cmp.Diff(want, dedicatedMapsIn(&r.Tables)); diff != "" {
			t.Errorf("%s: dedicated maps (-want +got):\n%s", step.title, diff)
		}
	}
}

// TestAStickyDedicatedMapHoldsNumbers: the map of a port with session affinity has a number for each slot.
func TestAStickyDedicatedMapHoldsNumbers(t *testing.T) {
	r := start(t, stickyBroad())
	elements, err := r.Elements(model.IPv4, ruleset.SetOf("sticky-endpoints-default/broad/tcp/http"))
	if err != nil {
		t.Fatal(err)
	}
	port := r.mirror.Service(serviceName("broad")).Ports[0]
	want := map[uint32]uint32{}
	for slot, endpoint := range port.Cluster {
		want[ruleset.ClusterSlot+uint32(slot)] = port.AffinityOf().Views[0].Endpoints[endpoint]
	}
	for slot, endpoint := range port.Local {
		want[ruleset.LocalSlot+uint32(slot)] = port.AffinityOf().Views[1].Endpoints[endpoint]
	}
	got := map[uint32]uint32{}
	for _, element := range elements {
		got[element.Key.Number] = element.Value.Number
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 60 {
		t.Errorf("%d numbers by slot (-want +got):\n%s", len(got), diff)
	}
	checkNumbers(t, r)
}
