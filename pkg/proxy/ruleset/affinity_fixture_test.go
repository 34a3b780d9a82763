package ruleset_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// lookups are the results of a packet's lookups in the maps of a family's table.
type lookups struct {
	classes, stickyClasses map[ruleset.Tuple]uint32
	// ports are the numbers of ports by frontend; outside are those for clients outside, where they differ.
	ports, outside map[ruleset.Tuple]uint32
	// slots are the numbers of endpoints by frontend and slot.
	slots    map[ruleset.Tuple]uint32
	numbered map[ruleset.Tuple]netip.AddrPort
	// collided are those keys of numbered that are in the map numbered-collided.
	collided       map[ruleset.Tuple]bool
	dispatch       map[ruleset.Class]ruleset.Verdict
	stickyDispatch map[ruleset.Class]ruleset.Verdict
}

func lookupsIn(t testing.TB, tables *ruleset.Tables, family model.Family) lookups {
	t.Helper()
	all := func(sets ...ruleset.Set) map[ruleset.Tuple]ruleset.Element {
		elements := map[ruleset.Tuple]ruleset.Element{}
		for _, set := range sets {
			list, err := tables.Elements(family, set)
			if err != nil {
				t.Fatal(err)
			}
			for _, element := range list {
				if _, isDuplicate := elements[element.Key]; isDuplicate {
					t.Errorf("two of the sets %s and %s have the key %s", sets[0].Name, sets[1].Name, element.Key.Text(set.Key))
				}
				elements[element.Key] = element
			}
		}
		return elements
	}
	numbers := func(sets ...ruleset.Set) map[ruleset.Tuple]uint32 {
		numbers := map[ruleset.Tuple]uint32{}
		for key, element := range all(sets...) {
			numbers[key] = element.Value.Number
		}
		return numbers
	}
	verdicts := func(set ruleset.Set) map[ruleset.Class]ruleset.Verdict {
		verdicts := map[ruleset.Class]ruleset.Verdict{}
		for key, element := range all(set) {
			verdicts[ruleset.Class(key.Number)] = element.Verdict
		}
		return verdicts
	}
	found := lookups{
		classes:        numbers(ruleset.Services, ruleset.NodePorts),
		stickyClasses:  numbers(ruleset.Sticky, ruleset.NodePortSticky),
		ports:          numbers(ruleset.StickyPorts, ruleset.NodePortStickyPorts),
		outside:        numbers(ruleset.StickyOutside, ruleset.NodePortStickyOutside),
		slots:          numbers(ruleset.StickyEndpoints, ruleset.NodePortStickyEndpoints),
		numbered:       map[ruleset.Tuple]netip.AddrPort{},
		collided:       map[ruleset.Tuple]bool{},
		dispatch:       verdicts(ruleset.Dispatch),
		stickyDispatch: verdicts(ruleset.StickyDispatch),
	}
	for key, element := range all(ruleset.Numbered, ruleset.NumberedCollided) {
		found.numbered[key] = netip.AddrPortFrom(element.Value.Addr, element.Value.Port)
	}
	for key := range all(ruleset.NumberedCollided) {
		found.collided[key] = true
	}
	return found
}

// keyOf returns the key of a frontend in services, or in nodeports.
func keyOf(frontend ruleset.Frontend) ruleset.Tuple {
	key := ruleset.Tuple{Addr: frontend.Addr, Proto: frontend.Protocol, Port: frontend.Port}
	if frontend.IsNodePort() {
		key.Addr = netip.Addr{}
	}
	return key
}

// isSticky reports whether a frontend has session affinity.
func (l lookups) isSticky(frontend ruleset.Frontend) bool {
	return l.classes[keyOf(frontend)]>>24 == 0xf7
}

// portOf returns the number of the port of a frontend, for clients inside or outside.
func (l lookups) portOf(frontend ruleset.Frontend, outside bool) uint32 {
	number := l.ports[keyOf(frontend)]
	if other, isOther := l.outside[keyOf(frontend)]; isOther && outside {
		return other
	}
	return number
}

// portNumbers returns the numbers of all ports.
func (l lookups) portNumbers() map[uint32]bool {
	numbers := map[uint32]bool{}
	for _, ports := range []map[ruleset.Tuple]uint32{l.ports, l.outside} {
		for _, number := range ports {
			if number != ruleset.NoPort {
				numbers[number] = true
			}
		}
	}
	return numbers
}

// checkNumbers checks the invariants of session affinity: no two ports have the same number, all numbers
// of endpoints belong to their port, nothing else is numbered, and each frontend leads to the port that its view has.
// With affinity disabled the same frontends lead to the same endpoints from the same slots.
func checkNumbers(t testing.TB, r *rig) {
	t.Helper()
	for _, family := range model.Families {
		checkFamilyNumbers(t, r, family)
	}
	checkWithoutAffinity(t, r)
}

func checkFamilyNumbers(t testing.TB, r *rig, family model.Family) {
	t.Helper()
	found := lookupsIn(t, &r.Tables, family)
	owner, numbered, frontends := map[uint32]string{}, 0, 0
	for _, name := range r.mirror.Names() {
		for _, port := range r.mirror.Service(name).Ports {
			state := port.AffinityOf()
			if port.ID.Family != family || state == nil {
				continue
			}
			for view, numbering := range state.Views {
				if (numbering.Port == 0) != (len(numbering.Endpoints) == 0) {
					t.Errorf("%v: view %d has the number %x and %d endpoints", port.ID, view, numbering.Port, len(numbering.Endpoints))
				}
				if numbering.Port == 0 {
					continue
				}
				if other, taken := owner[numbering.Port]; taken {
					t.Errorf("%v and %s have the number %x", port.ID, other, numbering.Port)
				}
				owner[numbering.Port] = port.ID.Service.String() + " " + port.ID.Port
				size, isEndpoint, ok := ruleset.NumberKind(numbering.Port)
				if !ok || isEndpoint || size != state.SizeClass || int(ruleset.ShardOf(numbering.Port)) != state.Shard {
					t.Errorf("%v has the number %x in size class %d and shard %d", port.ID, numbering.Port, state.SizeClass, state.Shard)
				}
				numbered += checkEndpoints(t, found, port, numbering)
			}
			frontends += checkFrontends(t, found, port)
		}
	}
	if len(found.numbered) != numbered || len(found.ports) != frontends || len(found.stickyClasses) != frontends {
		t.Errorf("%s: %d numbered endpoints, want %d; %d frontends with a port number and %d with a class, want %d",
			family, len(found.numbered), numbered, len(found.ports), len(found.stickyClasses), frontends)
	}
}

// checkEndpoints checks the numbers of a port's endpoints in one view, and returns their number.
func checkEndpoints(t testing.TB, found lookups, port ruleset.Port, numbering ruleset.Numbering) int {
	t.Helper()
	owner := map[uint32]netip.AddrPort{}
	for endpoint, number := range numbering.Endpoints {
		if _, isEndpoint, ok := ruleset.NumberKind(number); !ok || !isEndpoint || ruleset.PortOf(number) != numbering.Port {
			t.Errorf("%v: the endpoint %s has the number %x, which is not one of %x", port.ID, endpoint, number, numbering.Port)
			continue
		}
		if other, taken := owner[number]; taken {
			t.Errorf("%v: %s and %s have the number %x", port.ID, other, endpoint, number)
		}
		owner[number] = endpoint
		key := ruleset.Tuple{Proto: port.ID.Protocol, Number: number}
		if got := found.numbered[key]; got != endpoint {
			t.Errorf("%v: the number %x of %s leads to %s", port.ID, number, endpoint, got)
		}
		if isCollided := number != ruleset.NumberOf(numbering.Port, endpoint); isCollided && !found.collided[key] {
			t.Errorf("%v: the number %x of %s does not follow from its address, but is not in numbered-collided",
				port.ID, number, endpoint)
		}
	}
	return len(owner)
}

// checkFrontends checks to which numbers a port's frontends lead, and returns how many of them do.
func checkFrontends(t testing.TB, found lookups, port ruleset.Port) (sticky int) {
	t.Helper()
	state := port.AffinityOf()
	number := func(view int) uint32 {
		if state.Views[view].Port == 0 {
			return ruleset.NoPort
		}
		return state.Views[view].Port
	}
	for _, frontend := range port.Frontends {
		if !frontend.Class.IsBalanced() {
			if found.isSticky(frontend) {
				t.Errorf("%v: %v has session affinity but no endpoint", port.ID, frontend.Frontend)
			}
			continue
		}
		sticky++
		inside, outside := number(0), number(0)
		switch {
		case frontend.Class.IsSplit():
			outside = number(1)
		case frontend.Local && !frontend.External:
			inside, outside = number(1), number(1)
		}
		if gotInside, gotOutside := found.portOf(frontend, false), found.portOf(frontend, true); gotInside != inside || gotOutside != outside {
			t.Errorf("%v: %v leads to the numbers %x and %x, want %x for internal and %x for external clients",
				port.ID, frontend.Frontend, gotInside, gotOutside, inside, outside)
		}
		class := ruleset.StickyClass(state.Timeout, uint32(state.Shard), frontend.IsNodePort())
		if got := found.classes[keyOf(frontend)]; got != uint32(class) || found.dispatch[class].Kind != ruleset.Jump {
			t.Errorf("%v: %v has the class %x, dispatched by %+v; want %x", port.ID, frontend.Frontend, got, found.dispatch[class], class)
		}
	}
	return sticky
}

// checkWithoutAffinity compares the tables with those of the same Services without affinity, in the same slots.
func checkWithoutAffinity(t testing.TB, r *rig) {
	t.Helper()
	var plainServices []ruleset.Service
	for _, name := range r.mirror.Names() {
		plainServices = append(plainServices, r.mirror.Service(name).WithoutAffinity())
	}
	var tables ruleset.Tables
	mirror, plan := ruleset.PlanFullSync(bothFamilies, plainServices, r.nodeState, nil)
	mustApply(t, &tables, plan.Batch)
	for _, family := range model.Families {
		sticky, plain := lookupsIn(t, &r.Tables, family), lookupsIn(t, &tables, family)
		chains := r.Objects(family).Chains
		for frontend, class := range plain.classes {
			want, got := plain.dispatch[ruleset.Class(class)], sticky.dispatch[ruleset.Class(sticky.classes[frontend])]
			if class, isSticky := sticky.stickyClasses[frontend]; isSticky {
				want, got = stickyChain(want), sticky.stickyDispatch[ruleset.Class(class)]
			}
			if got != want || want.Kind == ruleset.Jump && !slices.Contains(chains, want.Chain) {
				t.Errorf("%+v in %s is dispatched by %+v, want %+v", frontend, family, got, want)
			}
		}
		want, got := slotsOf(t, &tables, mirror, family), resolvedSlotsOf(t, r, sticky, family)
		if !maps.EqualFunc(want, got, maps.Equal) { // cmp.Diff of large maps is slow, even if they are equal
			t.Errorf("slots in %s (-without affinity +with affinity):\n%s", family, cmp.Diff(want, got, compareAddrPorts, cmpTuples))
		}
	}
}

// stickyChain returns the chain to which a class of clients without a stored endpoint is dispatched; for a port with a
// dedicated map it differs from the chain without affinity.
func stickyChain(verdict ruleset.Verdict) ruleset.Verdict {
	if strings.Contains(verdict.Chain, "/") {
		verdict.Chain = "sticky-" + verdict.Chain
	}
	return verdict
}

var cmpTuples = cmp.Comparer(func(a, b ruleset.Tuple) bool { return a == b })

// slotsOf returns the endpoints in all slots, by map and key. Those that wait for the cleanup are omitted: no class
// picks them.
func slotsOf(
	t testing.TB, tables *ruleset.Tables, mirror *ruleset.Mirror, family model.Family,
) map[string]map[ruleset.Tuple]netip.AddrPort {
	t.Helper()
	slots := map[string]map[ruleset.Tuple]netip.AddrPort{}
	for _, name := range tables.Objects(family).Sets {
		if kind := mapNameWithoutAffinity(name); kind != "" {
			elements, err := tables.Elements(family, ruleset.Set{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			for _, element := range elements {
				if mirror.IsDeletionDeferred(family, name, element.Key) {
					continue
				}
				if slots[kind] == nil {
					slots[kind] = map[ruleset.Tuple]netip.AddrPort{}
				}
				slots[kind][element.Key] = netip.AddrPortFrom(element.Value.Addr, element.Value.Port)
			}
		}
	}
	return slots
}

// mapNameWithoutAffinity returns the name that a map of slots has without affinity; empty if it is not a map of slots.
func mapNameWithoutAffinity(name string) string {
	isSlots := strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "nodeport-"), "sticky-"), "endpoints")
	if !isSlots {
		return ""
	}
	return strings.Replace(name, "sticky-", "", 1)
}

// resolvedSlotsOf is slotsOf of tables with affinity: what the number in a slot leads to.
func resolvedSlotsOf(t testing.TB, r *rig, numbers lookups, family model.Family) map[string]map[ruleset.Tuple]netip.AddrPort {
	t.Helper()
	slots := slotsOf(t, &r.Tables, r.mirror, family)
	for _, name := range r.Objects(family).Sets {
		if mapNameWithoutAffinity(name) == "" || mapNameWithoutAffinity(name) == name {
			continue
		}
		elements, err := r.Elements(family, ruleset.Set{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, element := range elements {
			if r.mirror.IsDeletionDeferred(family, name, element.Key) {
				continue
			}
			protocol := element.Key.Proto
			if parts := strings.Split(name, "/"); len(parts) > 1 { // a dedicated map
				for _, one := range model.Protocols {
					if strings.EqualFold(one.String(), parts[2]) {
						protocol = one
					}
				}
			}
			endpoint, isNumbered := numbers.numbered[ruleset.Tuple{Proto: protocol, Number: element.Value.Number}]
			if !isNumbered {
				t.Errorf("%s in %s leads to the number %x, which has no endpoint", name, family, element.Value.Number)
			}
			slots[mapNameWithoutAffinity(name)][element.Key] = endpoint
		}
	}
	return slots
}
