package rules

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func TestNodeLabelsKnowWhatSomeNodeCarries(t *testing.T) {
	nodes := NewNodeLabels()
	nodes.Put("a", map[string]string{"rack": "1", "topology.kubernetes.io/zone": "zone-a"})
	nodes.Put("b", map[string]string{"rack": "2", "topology.kubernetes.io/zone": "zone-b"})
	nodes.Put("c", map[string]string{"topology.kubernetes.io/zone": ""})
	if !nodes.Carries("rack") || !nodes.Carries("topology.kubernetes.io/zone") || nodes.Carries("row") {
		t.Errorf("keys are %v", nodes.keys)
	}
	if nodes.Zones() != 2 {
		t.Errorf("%d zones, want 2: an empty one is none", nodes.Zones())
	}
	nodes.Put("b", map[string]string{"topology.kubernetes.io/zone": "zone-a"})
	nodes.Delete("a")
	nodes.Delete("a")
	nodes.Delete("unknown")
	if nodes.Carries("rack") || nodes.Zones() != 1 {
		t.Errorf("keys are %v, zones %v", nodes.keys, nodes.zones)
	}
}

func TestNodeLabelsKeepNothingOfTheCaller(t *testing.T) {
	labels := map[string]string{"rack": "1"}
	nodes := NewNodeLabels()
	nodes.Put("a", labels)
	delete(labels, "rack")
	nodes.Delete("a")
	if len(nodes.keys) > 0 {
		t.Errorf("keys %v outlive their node", nodes.keys)
	}
}

// Whatever the history, the sums are those of the nodes that are there.
func TestNodeLabelsDoNotDependOnTheirHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() map[string]string {
		labels := map[string]string{}
		for _, key := range []string{"rack", "row", "topology.kubernetes.io/zone"} {
			if value := random.IntN(4); value > 0 {
				labels[key] = strconv.Itoa(value - 1)
			}
		}
		return labels
	}
	nodes := NewNodeLabels()
	for range 2000 {
		if name := strconv.Itoa(random.IntN(6)); random.IntN(3) == 0 {
			nodes.Delete(name)
		} else {
			nodes.Put(name, draw())
		}
		fresh := NewNodeLabels()
		for name, labels := range nodes.all() {
			fresh.Put(name, labels)
		}
		if diff := cmp.Diff(fresh, nodes, cmp.AllowUnexported(NodeLabels{}, shard{})); diff != "" {
			t.Fatalf("differs (-fresh +history):\n%s", diff)
		}
	}
}

func TestASnapshotStaysAsItWas(t *testing.T) {
	nodes := NewNodeLabels()
	for i := range 200 {
		nodes.Put(strconv.Itoa(i), map[string]string{"rack": strconv.Itoa(i)})
	}
	was := nodes.Snapshot()
	nodes.Put("7", map[string]string{"rack": "other"})
	nodes.Delete("8")
	nodes.Put("new", nil)
	count := 0
	for name, labels := range was.all() {
		if count++; labels["rack"] != name {
			t.Errorf("%s has become %v", name, labels)
		}
	}
	if count != 200 {
		t.Errorf("there were 200 Nodes, and are %d", count)
	}
	now := maps.Collect(nodes.all())
	if len(now) != 200 || now["7"]["rack"] != "other" || now["8"] != nil {
		t.Errorf("the changes are lost: %d Nodes, %v, %v", len(now), now["7"], now["8"])
	}
}

func TestWhichGroupsCross(t *testing.T) {
	const zone, region, rack = policy.Zone, policy.Region, policy.Key("rack")
	type labels = map[policy.Key]string
	for name, test := range map[string]struct {
		nodes []labels
		keys  []policy.Key
		want  crossing // without it they do not
	}{
		"racks named alike in two zones": {
			nodes: []labels{{rack: "r1", zone: "a"}, {rack: "r1", zone: "b"}, {rack: "r2", zone: "a"}}, keys: []policy.Key{rack, zone},
			want: crossing{rack, zone, [2]string{"n0", "n1"}},
		},
		"also in the other order": {
			nodes: []labels{{rack: "r1", zone: "a"}, {rack: "r1", zone: "b"}, {rack: "r2", zone: "a"}}, keys: []policy.Key{zone, rack},
			want: crossing{zone, rack, [2]string{"n0", "n2"}},
		},
		"racks of each zone": {
			nodes: []labels{{rack: "a1", zone: "a"}, {rack: "b1", zone: "b"}, {rack: "a2", zone: "a"}}, keys: []policy.Key{rack, zone},
		},
		"a rack that is all of two zones lies around them": {
			nodes: []labels{{rack: "r1", zone: "a"}, {rack: "r1", zone: "b"}}, keys: []policy.Key{rack, zone},
		},
		"zones of a region": {
			nodes: []labels{{zone: "a", region: "r"}, {zone: "b", region: "r"}, {zone: "c", region: "s"}}, keys: []policy.Key{zone, region},
		},
		"a node whose region is missing is in its zone alone": {
			nodes: []labels{{zone: "a", region: "r"}, {zone: "a"}, {zone: "b", region: "r"}}, keys: []policy.Key{zone, region},
			want: crossing{zone, region, [2]string{"n0", "n1"}},
		},
		"nodes without labels are in no group": {nodes: []labels{{}, {}, {zone: "a", rack: "r"}}, keys: []policy.Key{rack, zone}},
		"the third key crosses the first": {
			nodes: []labels{{rack: "r1", zone: "a", "pool": "p"}, {rack: "r1", zone: "a", "pool": "q"}, {rack: "r2", zone: "b", "pool": "p"}},
			keys:  []policy.Key{rack, zone, "pool"}, want: crossing{rack, "pool", [2]string{"n0", "n1"}},
		},
		"a hostname is a group of one, whatever its label": {
			nodes: []labels{{policy.Hostname: "x", zone: "a"}, {policy.Hostname: "x", zone: "b"}, {zone: "a"}},
			keys:  []policy.Key{policy.Hostname, zone, policy.AnyNode},
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := NewNodeLabels()
			for i, labels := range test.nodes {
				plain := map[string]string{}
				for key, value := range labels {
					plain[string(key)] = value
				}
				nodes.Put("n"+strconv.Itoa(i), plain)
			}
			got, found := nodes.crossing(test.keys)
			if got != test.want || found != (test.want != crossing{}) {
				t.Errorf("%v, %v; want %v", got, found, test.want)
			}
		})
	}
}

// Groups cross if and only if some two of them do, held against one another Node by Node.
func TestCrossingGroupsAreThoseThatCross(t *testing.T) {
	random, crossed := rand.New(rand.NewPCG(3, 9)), 0
	for range 2000 {
		nodes, all := NewNodeLabels(), [][2]string{}
		for i := range 2 + random.IntN(5) {
			values := [2]string{[]string{"", "1", "2"}[random.IntN(3)], []string{"", "1", "2"}[random.IntN(3)]}
			all = append(all, values)
			labels := map[string]string{}
			for k, value := range values {
				if value != "" {
					labels[[]string{"a", "b"}[k]] = value
				}
			}
			nodes.Put("n"+strconv.Itoa(i), labels)
		}
		want := false
		for _, values := range all {
			both, left, right := 0, 0, 0
			for _, other := range all {
				inFirst, inSecond := values[0] != "" && other[0] == values[0], values[1] != "" && other[1] == values[1]
				switch {
				case inFirst && inSecond:
					both++
				case inFirst:
					left++
				case inSecond:
					right++
				}
			}
			want = want || both > 0 && left > 0 && right > 0
		}
		got, found := nodes.crossing([]policy.Key{"a", "b"})
		if found != want {
			t.Fatalf("%v: crossing %v, want %v", all, got, want)
		}
		if again, _ := nodes.Snapshot().crossing([]policy.Key{"a", "b"}); again != got {
			t.Fatalf("%v: %v, and then %v", all, got, again)
		}
		if found {
			crossed++
		}
	}
	if crossed < 100 {
		t.Errorf("%d worlds cross: the test has tested little", crossed)
	}
}
