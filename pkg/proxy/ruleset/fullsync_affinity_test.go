package ruleset_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// firstAffinityMap is the map of the first Service port with affinity.
var firstAffinityMap = ruleset.Affinity(0)

// addClient adds a client to a map, as a sticky chain does.
func addClient(t testing.TB, r *rig, id model.PortID, client, endpoint string) {
	t.Helper()
	numbers := numbersOf(r.mirror)[id].Views[0]
	element := ruleset.Element{
		Key:   ruleset.Tuple{Addr: netip.MustParseAddr(client), Number: numbers.Port},
		Value: ruleset.Tuple{Number: numbers.Endpoints[netip.MustParseAddrPort(endpoint)]},
	}
	mustApply(t, &r.Tables, ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Object: ruleset.ElementsObject{
		Set: ruleset.Affinity(uint32(numbersOf(r.mirror)[id].Shard)), Elements: slices.Values([]ruleset.Element{element}),
	}}}})
}

// storedClients returns the endpoints of the clients in the first map, if they still exist.
func storedClients(t testing.TB, tables *ruleset.Tables) []string {
	t.Helper()
	elements, err := tables.Elements(model.IPv4, firstAffinityMap)
	if err != nil {
		return nil
	}
	found := lookupsIn(t, tables, model.IPv4)
	var list []string
	for _, element := range elements {
		endpoint, exists := found.numbered[ruleset.Tuple{Proto: model.TCP, Number: element.Value.Number}]
		if exists && found.portNumbers()[element.Key.Number] {
			list = append(list, element.Key.Addr.String()+" => "+endpoint.String())
		}
	}
	return list
}

func TestFullSyncAndStoredClients(t *testing.T) {
	web := func(endpoints ...string) ruleset.Service {
		return serviceOf(sticky(portOf("web", "10.96.0.1", endpoints...), time.Hour))
	}
	const client = "192.0.2.7 => " + first
	dropContents := func(objects *ruleset.Objects) { objects.Contents = nil }
	for title, test := range map[string]struct {
		wanted     []ruleset.Service
		change     func(*ruleset.Objects)
		remembered []string
	}{
		"clients keep their endpoints":            {services(web(first, second)), asFound, []string{client}},
		"clients of a removed endpoint lose it":   {services(web(second)), asFound, nil},
		"clients of a remaining endpoint keep it": {services(web(first, third)), asFound, []string{client}},
		"clients keep them if another Service is added first": {
			services(serviceOf(sticky(portOf("aaa", "10.96.0.9", third), time.Hour)), web(first)), asFound, []string{client},
		},
		"clients keep them with another timeout": {
			services(serviceOf(sticky(portOf("web", "10.96.0.1", first), time.Minute))), asFound, []string{client},
		},
		"clients keep them if the Service gets another frontend": {
			services(serviceOf(withNodePort(sticky(portOf("web", "10.96.0.1", first), time.Hour)))), asFound, []string{client},
		},
		"clients keep them if the Service loses a frontend": {services(serviceOf(withoutFirst(withNodePort(
			sticky(portOf("web", "10.96.0.1", first), time.Hour))))), asFound, []string{client}},
		"clients lose them if the table is recreated":                {services(web(first, second)), needRecreate, nil},
		"clients lose them if affinity is disabled":                  {services(serviceOf(portOf("web", "10.96.0.1", first))), asFound, nil},
		"the name determines the number if the contents are unknown": {services(web(first, second)), dropContents, []string{client}},
	} {
		t.Run(title, func(t *testing.T) {
			r := start(t, serviceOf(withNodePort(web(first, second).Ports[0])))
			addClient(t, r, web(first).Ports[0].ID, "192.0.2.7", first)
			r.restart(t, test.change, test.wanted...)
			if diff := cmp.Diff(test.remembered, storedClients(t, &r.Tables)); diff != "" {
				t.Errorf("stored clients (-want +got):\n%s", diff)
			}
			checkNumbers(t, r)
		})
	}
}

// withoutFirst removes the first frontend of a port.
func withoutFirst(port ruleset.Port) ruleset.Port {
	port.Frontends = port.Frontends[1:]
	return port
}

// TestEachFamilyHasNumbersOfItsOwn: if only one of the tables was read, its numbers are not used for the other.
func TestEachFamilyHasNumbersOfItsOwn(t *testing.T) {
	const first6 = "[fd00:244::1]:8080"
	web := serviceOf(sticky(portOf("web", "10.96.0.1", first), time.Hour), sticky(portOf("web", "fd00:96::1", first6), time.Hour))
	db := serviceOf(sticky(portOf("db", "10.96.0.2", first), time.Hour), sticky(portOf("db", "fd00:96::2", first6), time.Hour))
	for _, kept := range model.Families {
		r := start(t, web, db)
		before := numbersOf(r.mirror)
		found := map[model.Family]ruleset.Objects{kept: r.Objects(kept)}
		mirror, _ := ruleset.PlanFullSync(bothFamilies, services(db, web), initialNodeState, found) // in reverse order: shards change
		for id, state := range numbersOf(mirror) {
			if same := state.Views[0].Port == before[id].Views[0].Port; same != (id.Family == kept) {
				t.Errorf("with only the %s table found, %v keeps its number: %v", kept, id, same)
			}
		}
	}
}

func TestCleanupAfterFullSyncDeletesExactlyTheLeftovers(t *testing.T) {
	old := many(ruleset.PreallocatedSlots + 1)
	r := start(t, serviceOf(sticky(portOf("old", "10.96.0.9", old...), time.Hour)), serviceOf(portOf("web", "10.96.0.1", first)))
	found := map[model.Family]ruleset.Objects{model.IPv4: r.Objects(model.IPv4), model.IPv6: r.Objects(model.IPv6)}
	mirror, plan := ruleset.PlanFullSync(bothFamilies, services(serviceOf(portOf("web", "10.96.0.1", third))), initialNodeState, found)
	mustApply(t, &r.Tables, plan.Batch)
	flushed := []string{"0 chain lb-33", "0 chain sticky-3600-0"}
	sets := append(slices.Clone(flushed), "- set affinity-0")
	chains := append(slices.Clone(flushed), "- chain lb-33", "- chain sticky-3600-0")
	for _, want := range [][]string{sets, chains} {
		for _, try := range []string{"first", "after a failed cleanup"} {
			if diff := cmp.Diff(want, operations(mirror.Cleanup(1<<20))); diff != "" {
				t.Errorf("%s: cleanup (-want +got):\n%s", try, diff)
			}
		}
		mustApply(t, &r.Tables, mirror.Cleanup(1<<20))
		mirror.CleanupDone()
	}
	if again := operations(mirror.Cleanup(1 << 20)); again != nil {
		t.Errorf("deleted objects are deleted again: %v", again)
	}
}

// damage changes the session affinity that is found in one family, as another program may.
type damage func(random *rand.Rand, contents map[string][]ruleset.Element)

var (
	portMaps = []string{"sticky-ports", "nodeport-sticky-ports", "sticky-outside", "nodeport-sticky-outside"}
	// invalidNumbers are not a port's number, or not an endpoint's.
	invalidNumbers = []uint32{
		0, 1, ruleset.NoPort, 0xf0000001, 0xf0000100, 0xf00fff00, 0xf1000000, 0xf1001000, 0xf1000100, 0xf4000000, 0xf4010000, 0xf4000001,
		0xf2000000, 0xf2000105, 0xf3001005, 0xf6010005, 0xf5000000, 0xf7000000, 0xfe000002, 0xff000001, 0xffffffff,
	}
)

var damages = map[string]damage{
	"two ports have one number": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		all := contents["sticky-ports"]
		for i := range all {
			if random.IntN(3) == 0 {
				all[i].Value = all[random.IntN(len(all))].Value
			}
		}
	},
	"the frontends of a port have different numbers": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		for _, name := range portMaps {
			all := contents[name]
			random.Shuffle(len(all), func(i, j int) { all[i].Value, all[j].Value = all[j].Value, all[i].Value })
		}
	},
	"both views have one number": func(_ *rand.Rand, contents map[string][]ruleset.Element) {
		for i, outside := range contents["sticky-outside"] {
			for _, inside := range contents["sticky-ports"] {
				if inside.Key == outside.Key {
					contents["sticky-outside"][i].Value = inside.Value
				}
			}
		}
	},
	"numbers of no port": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		for _, name := range portMaps {
			for i := range contents[name] {
				contents[name][i].Value.Number = invalidNumbers[random.IntN(len(invalidNumbers))]
			}
		}
	},
	"numbers of other shards and size classes": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		for _, name := range portMaps {
			for i := range contents[name] {
				prefix := []uint32{0xf0000000, 0xf1000000, 0xf4000000}[random.IntN(3)]
				contents[name][i].Value.Number = prefix | uint32(random.IntN(8))<<[]int{8, 12, 16}[prefix>>24&3%3]
			}
		}
	},
	"all numbers are taken": func(_ *rand.Rand, contents map[string][]ruleset.Element) {
		for i := range uint32(1 << 16) {
			contents["sticky-outside"] = append(contents["sticky-outside"], ruleset.Element{
				Key: ruleset.Tuple{Number: i}, Value: ruleset.Tuple{Number: 0xf0000000 | i<<8},
			})
		}
	},
	"endpoints have numbers of other ports": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		all := contents["numbered-collided"]
		random.Shuffle(len(all), func(i, j int) { all[i].Value, all[j].Value = all[j].Value, all[i].Value })
	},
	"endpoints have numbers of no endpoint": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		for i := range contents["numbered-collided"] {
			contents["numbered-collided"][i].Key.Number = invalidNumbers[random.IntN(len(invalidNumbers))]
		}
	},
	"endpoints have the numbers of ports": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		for i := range contents["numbered-collided"] {
			contents["numbered-collided"][i].Key.Number &^= ruleset.EndpointFlag
		}
	},
	"endpoints have many numbers, and one has an endpoint's own": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		for _, element := range contents["numbered-collided"] {
			for range 100 {
				element.Key.Number = ruleset.PortOf(element.Key.Number) | ruleset.EndpointFlag | uint32(random.IntN(256))
				contents["numbered-collided"] = append(contents["numbered-collided"], element)
			}
		}
	},
	"elements are missing": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		for name, elements := range contents {
			contents[name] = slices.DeleteFunc(elements, func(ruleset.Element) bool { return random.IntN(2) == 0 })
		}
	},
	"anything": func(random *rand.Rand, contents map[string][]ruleset.Element) {
		for _, name := range append(portMaps, "numbered-collided") {
			for i := range contents[name] {
				switch random.IntN(6) {
				case 0:
					contents[name][i].Key.Number = random.Uint32()
				case 1:
					contents[name][i].Value.Number = 0xf0000000 | random.Uint32()&0x0fffffff
				case 2:
					contents[name][i].Value.Addr = netip.AddrFrom4([4]byte{10, 244, 0, byte(random.IntN(256))})
				case 3:
					contents[name][i].Key = contents[name][random.IntN(len(contents[name]))].Key
				}
			}
		}
	},
}

// TestAnyDamageIsRepaired: whatever other programs left in the sets from which numbers are restored, the tables accept
// the batch and are correct afterwards. Undamaged ports keep their clients.
func TestAnyDamageIsRepaired(t *testing.T) {
	pool := append(manySticky(60), stickyWeb(colliding(t, 5)...), stickyBroad())
	pool = append(pool, serviceOf(sticky(portWith("large", endpoints(numbersUpTo(300)...)), time.Hour)))
	pool[len(pool)-1].Ports[0].Frontends[0].Addr = netip.MustParseAddr("10.97.0.1")
	pool[len(pool)-3].Ports[0].Frontends[0].Addr = netip.MustParseAddr("10.97.0.2")
	for name, inject := range damages {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				random := rand.New(rand.NewPCG(seed, 0))
				r := start(t, pool...)
				damaged := false
				r.restart(t, func(objects *ruleset.Objects) {
					if len(objects.Contents["sticky-ports"]) > 0 {
						inject(random, objects.Contents)
						damaged = true
					}
				}, pool...)
				checkNumbers(t, r)
				if !damaged || t.Failed() {
					t.Fatalf("seed %d: damaged: %v", seed, damaged)
				}
				before := numbersOf(r.mirror)
				r.restart(t, asFound, pool...)
				if diff := diffNumbers(before, numbersOf(r.mirror)); diff != "" {
					t.Fatalf("seed %d: numbers (-before +after the next restart):\n%s", seed, diff)
				}
			}
		})
	}
}
