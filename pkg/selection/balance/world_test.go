package balance_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

const rack policy.Key = "example.com/rack"

var service = model.ObjectName{Namespace: "shop", Name: "cart"}

// scenario is the complete input of a plan.
type world struct {
	keys      []policy.Key
	limit     int
	nodes     map[string]map[string]string // labels by name
	endpoints []model.PortEndpoint
	clients   map[string]uint32 // nil means demand by labels
	// measured is set if the demand is measured: a plan then has only the sums of clients by zone.
	measured bool
}

// names returns the nodes' names, sorted.
func (w *world) names() []string {
	names := make([]string, 0, len(w.nodes))
	for name := range w.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// valueOf returns the same values as selection.NodeView.ValueOf.
func (w *world) valueOf(endpoint *model.PortEndpoint, key policy.Key) (string, bool) {
	switch {
	case key == policy.Hostname:
		return endpoint.Node, endpoint.Node != ""
	case key == policy.Zone && endpoint.Zone != "":
		return endpoint.Zone, true
	}
	value, known := w.nodes[endpoint.Node][string(key)]
	return value, known
}

func (w *world) nodeClasses(self string) *balance.NodeClasses {
	classes := balance.NewNodeClasses(w.classKeys(), self)
	for name, labels := range w.nodes {
		classes.Set(name, labels)
	}
	return classes
}

// classKeys returns the keys that classify the nodes.
func (w *world) classKeys() []policy.Key {
	if w.measured && !slices.Contains(w.keys, policy.Zone) {
		return append(slices.Clone(w.keys), policy.Zone)
	}
	return w.keys
}

func (w *world) demand(classes *balance.NodeClasses) balance.Demand {
	if w.measured {
		zones := map[string]uint32{}
		for name, amount := range w.clients {
			if labels, known := w.nodes[name]; known {
				zones[labels[string(policy.Zone)]] += amount
			}
		}
		if demand, any := classes.Measured(zones); any {
			return demand
		}
		return classes.ByLabels()
	}
	if w.clients != nil {
		return classes.Named(w.clients)
	}
	return classes.ByLabels()
}

func (w *world) plan(self string) *balance.Plan {
	return balance.NewPlan(w.demand(w.nodeClasses(self)), balance.NewEndpointClasses(w.keys, w.endpoints, w.valueOf), w.limit)
}

// row is the result of one node.
type row struct {
	balance.Share
	slots []int
}

// rows returns the results of all nodes from a single plan.
func (w *world) rows() map[string]row {
	plan, rows := w.plan(""), map[string]row{}
	for name, labels := range w.nodes {
		share := plan.Share(name, labels)
		rows[name] = row{share, share.Slots(service, balance.Hashes(w.endpoints))}
	}
	return rows
}

func (w *world) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "keys %v, limit %d, clients %v, measured %t\n", w.keys, w.limit, w.clients, w.measured)
	for _, name := range w.names() {
		fmt.Fprintf(&text, "node %s %v\n", name, w.nodes[name])
	}
	for _, e := range w.endpoints {
		fmt.Fprintf(&text, "endpoint %v on %s zone %q ready %t serving %t terminating %t\n",
			e.Addr, e.Node, e.Zone, e.Ready, e.Serving, e.Terminating)
	}
	return text.String()
}

// addEndpoint adds a ready endpoint on a node, in the node's zone.
func (w *world) addEndpoint(node string) {
	i := len(w.endpoints)
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)
	w.endpoints = append(w.endpoints, model.PortEndpoint{Addr: addr, Endpoint: model.Endpoint{
		Node: node, Zone: w.nodes[node][string(policy.Zone)], Ready: true, Serving: true,
	}})
}

// shape returns a cluster with some nodes and endpoints in each zone, and a bound of 120 %. Endpoints are on the nodes
// of their zone, round-robin.
func shape(nodes, endpoints []int, keys ...policy.Key) *world {
	w := &world{keys: keys, limit: 120, nodes: map[string]map[string]string{}}
	for zone, count := range nodes {
		for i := range count {
			w.nodes[nodeIn(zone, i)] = map[string]string{string(policy.Zone): string(rune('a' + zone))}
		}
	}
	for zone, count := range endpoints {
		for i := range count {
			w.addEndpoint(nodeIn(zone, i%nodes[zone]))
		}
	}
	return w
}

func nodeIn(zone, i int) string { return fmt.Sprintf("%c-%03d", 'a'+zone, i) }

// randomScenario has regions with zones, which have racks. If it is inconsistent, all zones have the same rack names,
// labels are missing, slices contradict the nodes, and endpoints are on unknown nodes.
func randomWorld(random *rand.Rand, wild bool) *world {
	w := &world{nodes: map[string]map[string]string{}, limit: []int{100, 105, 120, 140, 200, 1000}[random.IntN(6)]}
	if random.IntN(4) == 0 {
		w.limit = 100 + random.IntN(901)
	}
	regions, zones, racks := 1+random.IntN(3), 1+random.IntN(4), 1+random.IntN(4)
	labelled := random.IntN(3) == 0
	for i := range 1 + random.IntN(60) {
		region, zone, class := random.IntN(regions), random.IntN(zones), random.IntN(racks)
		labels := map[string]string{
			string(policy.Region): fmt.Sprintf("r%d", region),
			string(policy.Zone):   fmt.Sprintf("r%d-z%d", region, zone),
			string(rack):          fmt.Sprintf("r%d-z%d-k%d", region, zone, class),
		}
		if wild {
			makeWild(random, labels, zone, class)
		}
		if labelled && random.IntN(2) == 0 {
			labels[policy.DemandLabel] = fmt.Sprint([]int{0, 1, 2, 5, 16, 100, random.IntN(101)}[random.IntN(7)])
		}
		w.nodes[fmt.Sprintf("n%02d", i)] = labels
	}
	names := w.names()
	if random.IntN(2) == 0 {
		names = names[:1+random.IntN(len(names))] // endpoints on some of the nodes only
	}
	for range 1 + random.IntN([]int{3, 12, 40}[random.IntN(3)]) {
		w.addEndpoint(names[random.IntN(len(names))])
		endpoint := &w.endpoints[len(w.endpoints)-1]
		if wild {
			endpoint.Node = []string{endpoint.Node, endpoint.Node, endpoint.Node, endpoint.Node, "unknown", ""}[random.IntN(6)]
			endpoint.Zone = []string{endpoint.Zone, endpoint.Zone, "", "elsewhere"}[random.IntN(4)]
		}
		if random.IntN(4) == 0 {
			endpoint.Ready, endpoint.Serving, endpoint.Terminating = false, random.IntN(3) > 0, random.IntN(3) > 0
		}
	}
	if random.IntN(4) == 0 {
		w.clients = map[string]uint32{"gone": 7}
		for range random.IntN(8) {
			w.clients[w.names()[random.IntN(len(w.nodes))]] = uint32(random.IntN(20))
		}
	}
	w.keys = randomKeys(random)
	return w
}

// measure gives all nodes of a zone equal demand, as if it were measured. At least one zone has demand.
func (w *world) measure(random *rand.Rand) {
	w.measured, w.clients = true, map[string]uint32{"gone": 7}
	demandOfZone := map[string]uint32{}
	for _, name := range w.names() {
		zone := w.nodes[name][string(policy.Zone)]
		if _, known := demandOfZone[zone]; !known {
			if demandOfZone[zone] = []uint32{0, 1, uint32(random.IntN(20))}[random.IntN(3)]; len(demandOfZone) == 1 {
				demandOfZone[zone]++ // at least one zone has demand
			}
		}
		w.clients[name] = demandOfZone[zone]
	}
}

// measuredScenarios yields scenarios with measured demand.
func measuredWorlds(t *testing.T, count int, yield func(w *world, random *rand.Rand)) {
	t.Helper()
	measured := func(w *world, random *rand.Rand) {
		w.measure(random)
		yield(w, random)
	}
	randomWorlds(t, count/2, false, measured)
	randomWorlds(t, count/2, true, measured)
}

func makeWild(random *rand.Rand, labels map[string]string, zone, class int) {
	labels[string(rack)] = fmt.Sprintf("k%d", class)
	if random.IntN(3) == 0 {
		labels[string(policy.Zone)] = fmt.Sprintf("z%d", zone)
	}
	for _, key := range []policy.Key{policy.Region, policy.Zone, rack} {
		if random.IntN(8) == 0 {
			delete(labels, string(key))
		}
	}
}

// randomKeys returns one to four keys in any order, half of the time before `*`.
func randomKeys(random *rand.Rand) []policy.Key {
	all := []policy.Key{policy.Hostname, rack, policy.Zone, policy.Region}
	if random.IntN(2) == 0 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	var keys []policy.Key
	for _, key := range all {
		if random.IntN(3) > 0 {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 || random.IntN(2) == 0 {
		keys = append(keys[:min(len(keys), 3)], policy.AnyNode)
	}
	return keys
}

// randomScenarios yields the same scenarios in every run.
func randomWorlds(t *testing.T, count int, wild bool, yield func(w *world, random *rand.Rand)) {
	t.Helper()
	random := rand.New(rand.NewPCG(13, uint64(count)))
	for i := range count {
		w := randomWorld(random, wild)
		yield(w, random)
		if t.Failed() {
			t.Fatalf("in scenario %d: %v", i, w)
		}
	}
}
