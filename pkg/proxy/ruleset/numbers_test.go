package ruleset_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// numbersInUse returns the contents from which numbers are restored, and nothing else of the tables.
func numbersInUse(tables *ruleset.Tables) map[model.Family]ruleset.Objects {
	found := map[model.Family]ruleset.Objects{}
	for _, family := range model.Families {
		var contents ruleset.Objects
		for name, elements := range tables.Objects(family).Contents {
			contents.Add(name, elements)
		}
		found[family] = contents
	}
	return found
}

// numbersOf returns the applied numbers of all ports and endpoints.
func numbersOf(mirror *ruleset.Mirror) map[model.PortID]*ruleset.AffinityState {
	numbers := map[model.PortID]*ruleset.AffinityState{}
	for _, name := range mirror.Names() {
		for _, port := range mirror.Service(name).Ports {
			if state := port.AffinityOf(); state != nil {
				numbers[port.ID] = state
			}
		}
	}
	return numbers
}

// diffNumbers returns how numbers differ.
func diffNumbers(before, after map[model.PortID]*ruleset.AffinityState) string {
	if reflect.DeepEqual(before, after) { // cmp.Diff of large maps is slow, even if they are equal
		return ""
	}
	return cmp.Diff(before, after, compareAddrPorts)
}

// checkKept compares the numbers before and after a change: a port that remains keeps its own, unless it needs those of
// a larger size class, and so does an endpoint; a new one gets none that existed before.
func checkKept(t testing.TB, before, after map[model.PortID]*ruleset.AffinityState) {
	t.Helper()
	for id, current := range after {
		old := before[id]
		if old == nil || old.SizeClass != current.SizeClass {
			if old != nil && old.SizeClass > current.SizeClass {
				t.Errorf("%v moves down from size class %d to %d", id, old.SizeClass, current.SizeClass)
			}
			continue
		}
		if old.Shard != current.Shard {
			t.Errorf("%v moves from shard %d to %d", id, old.Shard, current.Shard)
		}
		for view := range old.Views {
			checkViewKept(t, id, old.Views[view], current.Views[view])
		}
	}
}

func checkViewKept(t testing.TB, id model.PortID, old, current ruleset.Numbering) {
	t.Helper()
	if old.Port == 0 || current.Port == 0 {
		return
	}
	if old.Port != current.Port {
		t.Errorf("%v had the number %x and now has %x", id, old.Port, current.Port)
	}
	taken := map[uint32]netip.AddrPort{}
	for endpoint, number := range old.Endpoints {
		taken[number] = endpoint
	}
	for endpoint, number := range current.Endpoints {
		if before, stays := old.Endpoints[endpoint]; stays && before != number {
			t.Errorf("%v: %s had the number %x and now has %x", id, endpoint, before, number)
		}
		if other, isTaken := taken[number]; isTaken && other != endpoint {
			t.Errorf("%v: %s has the number %x, which %s had before", id, endpoint, number, other)
		}
	}
}

// changeAndCheckNumbers changes Services and checks the numbers before and after.
func (r *rig) changeAndCheckNumbers(t testing.TB, services ...ruleset.Service) *ruleset.Plan {
	t.Helper()
	before := numbersOf(r.mirror)
	plan := r.change(t, services...)
	checkKept(t, before, numbersOf(r.mirror))
	checkNumbers(t, r)
	return plan
}

// restart runs a full sync as a proxy that finds the tables.
func (r *rig) restart(t testing.TB, change func(*ruleset.Objects), services ...ruleset.Service) *ruleset.Plan {
	t.Helper()
	found := map[model.Family]ruleset.Objects{}
	for _, family := range model.Families {
		objects := r.Objects(family)
		change(&objects)
		found[family] = objects
	}
	mirror, plan := ruleset.PlanFullSync(bothFamilies, services, r.nodeState, found)
	mustApply(t, &r.Tables, plan.Batch)
	r.mirror = mirror
	cleanUpAll(t, &r.Tables, r.mirror)
	return plan
}

// colliding returns endpoints that would all have the same number, found among the first of many addresses.
func colliding(t testing.TB, count int) []netip.AddrPort {
	t.Helper()
	byNumber := map[uint32][]netip.AddrPort{}
	for _, endpoint := range endpoints(numbersUpTo(5000)...) {
		number := ruleset.NumberOf(0xf0000000, endpoint)
		if byNumber[number] = append(byNumber[number], endpoint); len(byNumber[number]) == count {
			return byNumber[number]
		}
	}
	t.Fatalf("found fewer than %d endpoints that collide", count)
	return nil
}

func stickyWeb(endpoints ...netip.AddrPort) ruleset.Service {
	return serviceOf(sticky(portWith("web", endpoints), time.Hour))
}

// TestAnEndpointKeepsItsNumberAsLongAsItStays, whatever other endpoints are added and removed, even if the hashes of
// several collide; and a new endpoint has no number that another one just had.
func TestAnEndpointKeepsItsNumberAsLongAsItStays(t *testing.T) {
	collisions := colliding(t, 4)
	pool := append(slices.Clone(collisions), endpoints(numbersUpTo(60)...)...)
	slices.SortFunc(pool, netip.AddrPort.Compare)
	pool = slices.Compact(pool)
	random := rand.New(rand.NewPCG(5, 6))
	r := start(t, stickyWeb(collisions...))
	checkNumbers(t, r)
	collided := 0
	for range 300 {
		var want []netip.AddrPort
		percent := 1 + random.IntN(99)
		for _, endpoint := range pool {
			if random.IntN(100) < percent {
				want = append(want, slices.Repeat([]netip.AddrPort{endpoint}, 1+random.IntN(2))...)
			}
		}
		r.changeAndCheckNumbers(t, stickyWeb(want...))
		collided += len(lookupsIn(t, &r.Tables, model.IPv4).collided)
		if random.IntN(4) == 0 {
			before := numbersOf(r.mirror)
			r.restart(t, asFound, r.mirror.Service(serviceName("web")))
			if diff := diffNumbers(before, numbersOf(r.mirror)); diff != "" {
				t.Fatalf("numbers (-before +after a restart):\n%s", diff)
			}
		}
		if t.Failed() {
			t.Fatalf("failed with %v", want)
		}
	}
	if collided == 0 {
		t.Error("no two endpoints collided, so collisions were not tested")
	}
}

// TestTheReplacementOfAnEndpointHasAnotherNumber, or its clients would be sent to it, even if its address gives it the
// same number.
func TestTheReplacementOfAnEndpointHasAnotherNumber(t *testing.T) {
	collisions := colliding(t, 2)
	number := func(r *rig, endpoint netip.AddrPort) uint32 {
		return r.mirror.Service(serviceName("web")).Ports[0].AffinityOf().Views[0].Endpoints[endpoint]
	}
	r := start(t, stickyWeb(collisions[0]))
	before := number(r, collisions[0])
	r.changeAndCheckNumbers(t, stickyWeb(collisions[1]))
	if after := number(r, collisions[1]); after == before || after == 0 {
		t.Errorf("%s has the number %x; %s had %x before", collisions[1], after, collisions[0], before)
	}
	r.changeAndCheckNumbers(t, stickyWeb(collisions...))
	if again := number(r, collisions[0]); again != before {
		t.Errorf("%s is added again with the number %x, and had %x", collisions[0], again, before)
	}
}

// TestNumbersAreTheSameAfterARestart, whichever Service is first, and even if hashes collide: the kernel stores the
// endpoints of clients by these numbers.
func TestNumbersAreTheSameAfterARestart(t *testing.T) {
	services, random := manySticky(1000), rand.New(rand.NewPCG(7, 8))
	r := start(t, services...)
	for range 200 { // some are removed and others added
		number := random.IntN(len(services))
		r.change(t, emptyService(services[number].Name.Name))
		r.change(t, services[number])
	}
	r.cleanUp(t)
	checkNumbers(t, r)
	before, printed := numbersOf(r.mirror), text(t, &r.Tables)
	ports, collided := 0, len(lookupsIn(t, &r.Tables, model.IPv4).collided)
	for _, service := range services {
		for _, port := range service.Ports {
			state := before[port.ID]
			for view, numbering := range state.Views {
				if numbering.Port != 0 && numbering.Port != ruleset.FirstPortNumber(port, state.SizeClass, uint32(state.Shard), view) {
					ports++
				}
			}
		}
	}
	if ports == 0 || collided == 0 {
		t.Fatalf("%d ports and %d endpoints have a number other than their first choice, want some of each", ports, collided)
	}
	for range 3 {
		random.Shuffle(len(services), func(i, j int) { services[i], services[j] = services[j], services[i] })
		r.restart(t, asFound, services...)
		if diff := diffNumbers(before, numbersOf(r.mirror)); diff != "" {
			t.Fatalf("numbers (-before +after a restart):\n%s", diff)
		}
		if diff := cmp.Diff(printed, text(t, &r.Tables)); diff != "" {
			t.Fatalf("tables (-before +after a restart):\n%s", diff)
		}
	}
	fresh := numbersOf(start(t, services...).mirror)
	for _, table := range []struct {
		name   string
		forget func(*ruleset.Objects)
	}{
		{"recreated", needRecreate},
		{"with unknown contents", func(objects *ruleset.Objects) { objects.Contents = nil }},
	} {
		r.restart(t, table.forget, services...)
		if diff := diffNumbers(fresh, numbersOf(r.mirror)); diff != "" {
			t.Errorf("table %s: numbers (-start with empty tables +restart):\n%s", table.name, diff)
		}
		checkNumbers(t, r)
	}
}

// TestAKeptVersionHasNoNumbersWithoutFrontends: an earlier version stays applied, except for the frontends that another
// Service owns now.
func TestAKeptVersionHasNoNumbersWithoutFrontends(t *testing.T) {
	r := start(t, serviceOf(withNodePort(sticky(portOf("web", "10.96.0.1", first, second), time.Hour))))
	kept := r.mirror.Service(serviceName("web"))
	kept.Ports = slices.Clone(kept.Ports)
	kept.Ports[0] = withoutFirst(kept.Ports[0])
	before := numbersOf(r.mirror)
	r.changeAndCheckNumbers(t, kept)
	if diff := diffNumbers(before, numbersOf(r.mirror)); diff != "" {
		t.Errorf("numbers (-before +with only a node port):\n%s", diff)
	}
	kept.Ports[0] = withoutFrontends(kept.Ports[0])
	r.changeAndCheckNumbers(t, kept)
	if numbers := numbersOf(r.mirror); len(numbers) > 0 {
		t.Errorf("the port without frontends has the numbers %+v", numbers)
	}
}

// manySticky returns Services with affinity, each with a ClusterIP and a node port, two endpoints, and two views in
// every third.
func manySticky(count int) []ruleset.Service {
	services := make([]ruleset.Service, count)
	for i := range services {
		port := portOf(fmt.Sprint("sticky-", i), netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String())
		port.Cluster = endpoints(i%200, (i+17)%400, 1000+i%7)
		port.Frontends[0].Class = ruleset.BalanceClass(3)
		port = withNodePort(sticky(port, time.Hour))
		port.Frontends[1].Port = uint16(20000 + i)
		if i%3 == 0 {
			port.Local = port.Cluster[:1]
			port.Frontends[1].Local, port.Frontends[1].Class = true, ruleset.SplitClass(1, 3)
		}
		services[i] = serviceOf(port)
	}
	return services
}

// TestFewMapsAndChainsServeAnyNumberOfServices: the kernel checks all of them when a verdict is added.
func TestFewMapsAndChainsServeAnyNumberOfServices(t *testing.T) {
	services := manySticky(1000)
	for i := range services {
		services[i].Ports[0].Affinity = time.Duration(1+i%40) * time.Minute
	}
	r := start(t, services...)
	mapCount, chainCount, shards := 0, 0, map[int]int{}
	for _, name := range r.Objects(model.IPv4).Sets {
		if strings.HasPrefix(name, "affinity-") {
			mapCount++
		}
	}
	for _, name := range r.Objects(model.IPv4).Chains {
		if strings.Contains(name, "sticky-") && !strings.HasSuffix(name, "-port") && !strings.HasSuffix(name, "-draw") {
			chainCount++
		}
	}
	if small := ruleset.Shards()[0]; mapCount != small || chainCount > 2*small*(ruleset.MaxTimeouts+2) {
		t.Errorf("there are %d maps and %d chains, want %d and %d at most", mapCount, chainCount, small, 2*small*(ruleset.MaxTimeouts+2))
	}
	for _, state := range numbersOf(r.mirror) {
		shards[state.Shard]++
	}
	for shard, ports := range shards {
		if ports > len(services)/len(shards)+1 {
			t.Errorf("%d of %d ports have shard %d of %d", ports, len(services), shard, len(shards))
		}
	}
	medium, large := withNumbers(t, stickyWeb(endpoints(numbersUpTo(300)...)...)),
		withNumbers(t, stickyWeb(endpoints(numbersUpTo(5000)...)...))
	all, mediumShard, largeShard := ruleset.Shards(), medium.Ports[0].AffinityOf().Shard, large.Ports[0].AffinityOf().Shard
	if all[0]+all[1]+all[2] > 18 || mediumShard != all[0] || largeShard != all[0]+all[1] {
		t.Errorf("there are %v shards, want 18 at most; ports with many endpoints have the shards %d and %d",
			all, medium.Ports[0].AffinityOf().Shard, large.Ports[0].AffinityOf().Shard)
	}
}

// TestTheFirstPortsShareNoMap, whether of one Service or of several, added at once or one after another, in both
// families.
func TestTheFirstPortsShareNoMap(t *testing.T) {
	shards := ruleset.Shards()[0]
	atOnce, together := manySticky(shards), ruleset.Service{Name: serviceName("sticky-0")}
	for i, service := range atOnce {
		port := service.Ports[0]
		port.ID.Service, port.ID.Port = together.Name, fmt.Sprint("port-", i)
		together.Ports = append(together.Ports, port)
		ipv6 := sticky(portOf("sticky-0", fmt.Sprintf("fd00:96::%x", i+1), fmt.Sprintf("[fd00:244::%x]:8080", i+1)), time.Hour)
		ipv6.ID.Port = port.ID.Port
		together.Ports = append(together.Ports, ipv6)
	}
	oneByOne := start(t)
	for _, service := range atOnce {
		oneByOne.changeAndCheckNumbers(t, service)
	}
	inOnePlan := start(t)
	inOnePlan.changeAndCheckNumbers(t, atOnce...)
	grown := start(t, ruleset.Service{Name: together.Name, Ports: together.Ports[:10]})
	grown.changeAndCheckNumbers(t, together)
	for name, r := range map[string]*rig{
		"Services at the start": start(t, atOnce...), "Services in one plan": inOnePlan, "one Service after another": oneByOne,
		"ports of one Service": start(t, together), "ports that a Service gets later": grown,
	} {
		taken := map[model.Family]map[int]model.PortID{model.IPv4: {}, model.IPv6: {}}
		for id, state := range numbersOf(r.mirror) {
			if other, isTaken := taken[id.Family][state.Shard]; isTaken {
				t.Errorf("%s: both %v and %v have shard %d", name, id, other, state.Shard)
			}
			taken[id.Family][state.Shard] = id
		}
		if len(taken[model.IPv4]) != shards {
			t.Errorf("%s: %d shards are used, want all %d", name, len(taken[model.IPv4]), shards)
		}
	}
}

// TestAPortWithManyEndpointsMovesToALargerSizeClass, and keeps that size class as long as the port exists.
func TestAPortWithManyEndpointsMovesToALargerSizeClass(t *testing.T) {
	capacities := ruleset.SizeClasses()
	if want := []int{256, 4096, 65536}; !slices.Equal(capacities, want) {
		t.Fatalf("the size classes have room for %v endpoints, want %v", capacities, want)
	}
	r := start(t, stickyWeb(endpoints(1)...))
	for _, step := range []struct{ endpoints, tier int }{
		{256, 0}, {257, 1}, {256, 1}, {1, 1}, {4096, 1}, {4097, 2}, {4096, 2}, {1, 2},
	} {
		r.changeAndCheckNumbers(t, stickyWeb(endpoints(numbersUpTo(step.endpoints)...)...))
		if got := r.mirror.Service(serviceName("web")).Ports[0].AffinityOf(); got.SizeClass != step.tier ||
			len(got.Views[0].Endpoints) != step.endpoints {
			t.Errorf("%d of %d endpoints have numbers of size class %d, want all of size class %d",
				len(got.Views[0].Endpoints), step.endpoints, got.SizeClass, step.tier)
		}
		before := numbersOf(r.mirror)
		r.restart(t, asFound, r.mirror.Service(serviceName("web")))
		if diff := diffNumbers(before, numbersOf(r.mirror)); diff != "" {
			t.Errorf("with %d endpoints: numbers (-before +after a restart):\n%s", step.endpoints, diff)
		}
	}
	for _, count := range capacities[:2] {
		got := withNumbers(t, stickyWeb(endpoints(numbersUpTo(count)...)...)).Ports[0].AffinityOf()
		if ruleset.SizeClasses()[got.SizeClass] != count {
			t.Errorf("%d endpoints have numbers of size class %d, which has room for %d", count, got.SizeClass, capacities[got.SizeClass])
		}
	}
	r.change(t, emptyService("web"))
	r.changeAndCheckNumbers(t, stickyWeb(endpoints(1)...))
	if got := r.mirror.Service(serviceName("web")).Ports[0].AffinityOf().SizeClass; got != 0 {
		t.Errorf("a Service that is added again has numbers of size class %d, want 0", got)
	}
}

// TestRemovedEndpointsNeedRoomNextToAddedOnes, or one would get a number of the others. A port that cannot grow
// any more gets another number instead.
func TestRemovedEndpointsNeedRoomNextToAddedOnes(t *testing.T) {
	var all []netip.AddrPort
	for _, addr := range manyAddrs("10.128.0.0", 70000) {
		all = append(all, netip.AddrPortFrom(addr, 8080))
	}
	for _, test := range []struct {
		have, want []netip.AddrPort
		tier       int
		same       bool // the port keeps its number
	}{
		{all[:128], all[128:256], 0, true},
		{all[:129], all[128:256], 0, true},
		{all[:129], all[129:257], 1, false},
		{all[:2048], all[2048:4096], 1, true},
		{all[:2049], all[2049:4097], 2, false},
		{all[:35000], all[35000:70000], 2, false},
	} {
		r := start(t, stickyWeb(test.have...))
		before := numbersOf(r.mirror)
		r.changeAndCheckEndpoints(t, stickyWeb(test.want...))
		id := stickyWeb(all[0]).Ports[0].ID
		had, now := before[id], numbersOf(r.mirror)[id]
		if same := had.Views[0].Port == now.Views[0].Port; now.SizeClass != test.tier || same != test.same {
			t.Errorf("%d endpoints that replace %d have numbers of size class %d, want %d; the port keeps its number: %v, want %v",
				len(test.want), len(test.have), now.SizeClass, test.tier, same, test.same)
		}
	}
}

// changeAndCheckEndpoints is changeAndCheckNumbers for a port that may get another number.
func (r *rig) changeAndCheckEndpoints(t testing.TB, service ruleset.Service) {
	t.Helper()
	before := map[uint32]netip.AddrPort{}
	for _, state := range numbersOf(r.mirror) {
		for endpoint, number := range state.Views[0].Endpoints {
			before[number] = endpoint
		}
	}
	r.change(t, service)
	for _, state := range numbersOf(r.mirror) {
		for endpoint, number := range state.Views[0].Endpoints {
			if other, taken := before[number]; taken && other != endpoint {
				t.Errorf("%s has the number %x, which %s had before", endpoint, number, other)
			}
		}
	}
	checkNumbers(t, r)
}

// nearlyFull returns Services whose ports use all but free numbers of the largest size class.
func nearlyFull(free int) (services []ruleset.Service) {
	addrs := endpoints(numbersUpTo(4097)...)
	for i := range ruleset.PortNumbers()[2] - free {
		services = append(services, serviceOf(sticky(portWith(fmt.Sprint("large-", i), addrs), time.Hour)))
		services[i].Ports[0].Frontends[0].Addr = netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})
	}
	return services
}

// TestAPortWithoutANumberBalances: a port without a number is balanced like one without affinity, and is reported. It
// gets a number when another port is removed.
func TestAPortWithoutANumberBalances(t *testing.T) {
	few, one := endpoints(1, 2), sticky(portWith("late", endpoints(numbersUpTo(4097)...)), time.Hour)
	two := one // clients outside are kept on this node
	two.Local, two.Frontends = one.Cluster[:1], slices.Clone(one.Frontends)
	two.Frontends[0].Class, two.Frontends[0].External, two.Frontends[0].Local = ruleset.SplitClass(1, len(one.Cluster)), true, true
	for name, test := range map[string]struct {
		port ruleset.Port
		left int
	}{
		"one view":                          {one, 0},
		"two views, and one number is left": {two, 1},
	} {
		t.Run(name, func(t *testing.T) {
			late, emptied := serviceOf(test.port), emptyService("large-0")
			all := append(nearlyFull(test.left), late, serviceOf(sticky(portWith("small", few), time.Hour)))
			mirror, plan := ruleset.PlanFullSync(bothFamilies, all, initialNodeState, nil)
			expectWithoutAffinity(t, mirror, plan, test.port)
			// In one plan it would inherit the clients of the removed one.
			if got := mirror.Plan(services(late, emptied), initialNodeState).WithoutAffinity; len(got) != 1 || got[0] != test.port.ID {
				t.Errorf("while another is removed, %v lack affinity, want %v", got, test.port.ID)
			}
			mirror.Accept(mirror.Plan(services(emptied), initialNodeState))
			plan = mirror.Plan(services(late), initialNodeState)
			if len(plan.WithoutAffinity) > 0 {
				t.Errorf("after another was removed, %v still lack affinity", plan.WithoutAffinity)
			}
			mirror.Accept(plan)
			state := numbersOf(mirror)[test.port.ID]
			if state == nil || len(state.Views[0].Endpoints) != len(one.Cluster) || (state.Views[1].Port != 0) != (test.left > 0) {
				t.Errorf("after another was removed, it has the numbers %+v", state)
			}
			checkDistinct(t, mirror)
		})
	}
}

// checkDistinct checks that no two ports have the same number.
func checkDistinct(t *testing.T, mirror *ruleset.Mirror) {
	t.Helper()
	owner := map[uint32]model.PortID{}
	for id, state := range numbersOf(mirror) {
		for _, numbering := range state.Views {
			if other, taken := owner[numbering.Port]; taken && numbering.Port != 0 {
				t.Errorf("%v and %v have the number %x", id, other, numbering.Port)
			}
			owner[numbering.Port] = id
		}
	}
}

// expectWithoutAffinity checks that a port has the same as without affinity, and all others their numbers.
func expectWithoutAffinity(t *testing.T, mirror *ruleset.Mirror, plan *ruleset.Plan, port ruleset.Port) {
	t.Helper()
	if got := plan.WithoutAffinity; len(got) != 1 || got[0] != port.ID {
		t.Errorf("the plan lists %v as lacking affinity, want %v", got, port.ID)
	}
	planned := mirror.Service(port.ID.Service).Ports[0]
	if planned.AffinityOf() != nil {
		t.Errorf("the port has the numbers %+v", planned.AffinityOf())
	}
	if got, want := len(numbersOf(mirror)), mirror.Services()-1; got != want {
		t.Errorf("%d others have numbers, want %d", got, want)
	}
	checkDistinct(t, mirror)
	plain := port
	plain.Affinity = 0
	if diff := cmp.Diff(ownedBy(plain), ownedBy(planned)); diff != "" {
		t.Errorf("owned objects (-without affinity +without a number):\n%s", diff)
	}
}

// timeoutsOf returns the timeouts of Services, in seconds.
func timeoutsOf(mirror *ruleset.Mirror, names ...string) []int {
	var seconds []int
	for _, name := range names {
		seconds = append(seconds, int(mirror.Service(serviceName(name)).Ports[0].AffinityOf().Timeout/time.Second))
	}
	return seconds
}

// TestATimeoutIsRoundedUpToOneInUse if too many different ones are in use: each has chains of its own.
func TestATimeoutIsRoundedUpToOneInUse(t *testing.T) {
	withTimeout := func(number, seconds int) ruleset.Service {
		port := portOf(fmt.Sprint("of-", number), fmt.Sprintf("10.96.0.%d", number), first)
		return serviceOf(sticky(port, time.Duration(seconds)*time.Second))
	}
	r := start(t)
	const threeHours, day = 3 * 3600, 24 * 3600
	for _, step := range []struct {
		number, wanted, got int
	}{
		{1, 100, 100}, {2, threeHours, threeHours}, {3, 200, 200}, {4, 300, 300}, {5, day, day}, {6, 400, 400}, {7, 20000, 20000},
		{8, 600, 600},
		{9, 50, 100}, {10, 150, 200}, {11, 200, 200}, {12, 601, threeHours}, {13, threeHours, threeHours}, {14, threeHours + 1, 20000},
		{15, 20001, day}, {16, day, day}, {17, 400, 400},
		{1, 101, 200},              // it had one of them to itself
		{9, 101, 200}, {1, 77, 77}, // and now one is left
		{18, 78, 200},
	} {
		r.changeAndCheckNumbers(t, withTimeout(step.number, step.wanted))
		if got := timeoutsOf(r.mirror, fmt.Sprint("of-", step.number)); got[0] != step.got {
			t.Errorf("a Service with %d seconds gets %d, want %d", step.wanted, got[0], step.got)
		}
		used := map[time.Duration]bool{}
		for _, state := range numbersOf(r.mirror) {
			used[state.Timeout] = true
		}
		if limit := ruleset.MaxTimeouts + 2; len(used) > limit {
			t.Errorf("%d timeouts are in use, want %d at most", len(used), limit)
		}
	}
}

// TestAnotherTimeoutKeepsTheNumbers, and so the clients: returning ones are stored with the new timeout.
func TestAnotherTimeoutKeepsTheNumbers(t *testing.T) {
	r := start(t, manySticky(20)...)
	services := manySticky(20)
	before := numbersOf(r.mirror)
	for i := range services {
		services[i].Ports[0].Affinity = time.Minute
	}
	for name, change := range map[string]func(){
		"a change":  func() { r.changeAndCheckNumbers(t, services...) },
		"a restart": func() { r.restart(t, asFound, manySticky(20)...) },
	} {
		change()
		after := numbersOf(r.mirror)
		for id, state := range maps.Clone(after) {
			state.Timeout = before[id].Timeout
		}
		if diff := diffNumbers(before, after); diff != "" {
			t.Errorf("numbers (-before +after %s with another timeout):\n%s", name, diff)
		}
	}
}
