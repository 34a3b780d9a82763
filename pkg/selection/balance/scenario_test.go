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
type scenario struct {
	keys      []policy.Key
	limit     int
	nodes     map[string]map[string]string // labels by name
	endpoints []model.PortEndpoint
	clients   map[string]uint32 // nil means demand by labels
	// measured is set if the demand is measured: a plan then has only the sums of clients by zone.
	measured bool
	// open has the open connections by zone of a measured demand; nil means that they are distributed like new ones.
	open map[string]uint32
}

// names returns the nodes' names, sorted.
func (s *scenario) names() []string {
	names := make([]string, 0, len(s.nodes))
	for name := range s.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// valueOf returns the same values as selection.NodeView.ValueOf.
func (s *scenario) valueOf(endpoint *model.PortEndpoint, key policy.Key) (string, bool) {
	switch {
	case key == policy.Hostname:
		return endpoint.Node, endpoint.Node != ""
	case key == policy.Zone && endpoint.Zone != "":
		return endpoint.Zone, true
	}
	value, known := s.nodes[endpoint.Node][string(key)]
	return value, known
}

func (s *scenario) nodeClasses(self string) *balance.NodeClasses {
	classes := balance.NewNodeClasses(s.classKeys(), self)
	for name, labels := range s.nodes {
		classes.Set(name, labels)
	}
	return classes
}

// classKeys returns the keys that classify the nodes.
func (s *scenario) classKeys() []policy.Key {
	if s.measured && !slices.Contains(s.keys, policy.Zone) {
		return append(slices.Clone(s.keys), policy.Zone)
	}
	return s.keys
}

func (s *scenario) demand(classes *balance.NodeClasses) balance.Demand {
	if s.measured {
		zones := map[string]uint32{}
		for name, amount := range s.clients {
			if labels, known := s.nodes[name]; known {
				zones[labels[string(policy.Zone)]] += amount
			}
		}
		if demand, hasDemand := classes.Measured(&model.Demand{Zones: zones, Open: s.open}); hasDemand {
			return demand
		}
		return classes.ByLabels()
	}
	if s.clients != nil {
		return classes.Named(s.clients)
	}
	return classes.ByLabels()
}

func (s *scenario) plan(self string) *balance.Plan {
	return balance.NewPlan(s.demand(s.nodeClasses(self)), balance.NewEndpointClasses(s.keys, s.endpoints, s.valueOf), s.limit)
}

// row is the result of one node.
type row struct {
	balance.Share
	slots []int
}

// rows returns the results of all nodes from a single plan.
func (s *scenario) rows() map[string]row {
	plan, rows := s.plan(""), map[string]row{}
	for name, labels := range s.nodes {
		share := plan.Share(name, labels)
		rows[name] = row{share, share.Slots(service, balance.Hashes(s.endpoints))}
	}
	return rows
}

func (s *scenario) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "keys %v, limit %d, clients %v, measured %t, open %v\n", s.keys, s.limit, s.clients, s.measured, s.open)
	for _, name := range s.names() {
		fmt.Fprintf(&text, "node %s %v\n", name, s.nodes[name])
	}
	for _, e := range s.endpoints {
		fmt.Fprintf(&text, "endpoint %v on %s zone %q ready %t serving %t terminating %t\n",
			e.Addr, e.Node, e.Zone, e.Ready, e.Serving, e.Terminating)
	}
	return text.String()
}

// addEndpoint adds a ready endpoint on a node, in the node's zone.
func (s *scenario) addEndpoint(node string) {
	i := len(s.endpoints)
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)
	s.endpoints = append(s.endpoints, model.PortEndpoint{Addr: addr, Endpoint: model.Endpoint{
		Node: node, Zone: s.nodes[node][string(policy.Zone)], Ready: true, Serving: true,
	}})
}

// shape returns a cluster with some nodes and endpoints in each zone, and a bound of 120 %. Endpoints are on the nodes
// of their zone, round-robin.
func shape(nodes, endpoints []int, keys ...policy.Key) *scenario {
	s := &scenario{keys: keys, limit: 120, nodes: map[string]map[string]string{}}
	for zone, count := range nodes {
		for i := range count {
			s.nodes[nodeIn(zone, i)] = map[string]string{string(policy.Zone): string(rune('a' + zone))}
		}
	}
	for zone, count := range endpoints {
		for i := range count {
			s.addEndpoint(nodeIn(zone, i%nodes[zone]))
		}
	}
	return s
}

func nodeIn(zone, i int) string { return fmt.Sprintf("%c-%03d", 'a'+zone, i) }

// randomScenario has regions with zones, which have racks. If it is inconsistent, all zones have the same rack names,
// labels are missing, slices contradict the nodes, and endpoints are on unknown nodes.
func randomScenario(random *rand.Rand, inconsistent bool) *scenario {
	s := &scenario{nodes: map[string]map[string]string{}, limit: []int{100, 105, 120, 140, 200, 1000}[random.IntN(6)]}
	if random.IntN(4) == 0 {
		s.limit = 100 + random.IntN(901)
	}
	regions, zones, racks := 1+random.IntN(3), 1+random.IntN(4), 1+random.IntN(4)
	labelled := random.IntN(3) == 0
	for i := range 1 + random.IntN(60) {
		region, zone, rackNumber := random.IntN(regions), random.IntN(zones), random.IntN(racks)
		labels := map[string]string{
			string(policy.Region): fmt.Sprintf("r%d", region),
			string(policy.Zone):   fmt.Sprintf("r%d-z%d", region, zone),
			string(rack):          fmt.Sprintf("r%d-z%d-k%d", region, zone, rackNumber),
		}
		if inconsistent {
			makeInconsistent(random, labels, zone, rackNumber)
		}
		if labelled && random.IntN(2) == 0 {
			labels[policy.DemandLabel] = fmt.Sprint([]int{0, 1, 2, 5, 16, 100, random.IntN(101)}[random.IntN(7)])
		}
		s.nodes[fmt.Sprintf("n%02d", i)] = labels
	}
	names := s.names()
	if random.IntN(2) == 0 {
		names = names[:1+random.IntN(len(names))] // endpoints on some of the nodes only
	}
	for range 1 + random.IntN([]int{3, 12, 40}[random.IntN(3)]) {
		s.addEndpoint(names[random.IntN(len(names))])
		endpoint := &s.endpoints[len(s.endpoints)-1]
		if inconsistent {
			endpoint.Node = []string{endpoint.Node, endpoint.Node, endpoint.Node, endpoint.Node, "unknown", ""}[random.IntN(6)]
			endpoint.Zone = []string{endpoint.Zone, endpoint.Zone, "", "elsewhere"}[random.IntN(4)]
		}
		if random.IntN(4) == 0 {
			endpoint.Ready, endpoint.Serving, endpoint.Terminating = false, random.IntN(3) > 0, random.IntN(3) > 0
		}
	}
	if random.IntN(4) == 0 {
		s.clients = map[string]uint32{"gone": 7}
		for range random.IntN(8) {
			s.clients[s.names()[random.IntN(len(s.nodes))]] = uint32(random.IntN(20))
		}
	}
	s.keys = randomKeys(random)
	return s
}

// measure gives all nodes of a zone equal demand, as if it were measured. At least one zone has demand.
func (s *scenario) measure(random *rand.Rand) {
	s.measured, s.clients = true, map[string]uint32{"gone": 7}
	demandOfZone := map[string]uint32{}
	for _, name := range s.names() {
		zone := s.nodes[name][string(policy.Zone)]
		if _, known := demandOfZone[zone]; !known {
			if demandOfZone[zone] = []uint32{0, 1, uint32(random.IntN(20))}[random.IntN(3)]; len(demandOfZone) == 1 {
				demandOfZone[zone]++ // at least one zone has demand
			}
		}
		s.clients[name] = demandOfZone[zone]
	}
}

// measuredScenarios yields scenarios with measured demand.
func measuredScenarios(t *testing.T, count int, yield func(s *scenario, random *rand.Rand)) {
	t.Helper()
	measured := func(s *scenario, random *rand.Rand) {
		s.measure(random)
		yield(s, random)
	}
	randomScenarios(t, count/2, false, measured)
	randomScenarios(t, count/2, true, measured)
}

func makeInconsistent(random *rand.Rand, labels map[string]string, zone, rackNumber int) {
	labels[string(rack)] = fmt.Sprintf("k%d", rackNumber)
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
func randomScenarios(t *testing.T, count int, inconsistent bool, yield func(s *scenario, random *rand.Rand)) {
	t.Helper()
	random := rand.New(rand.NewPCG(13, uint64(count)))
	for i := range count {
		s := randomScenario(random, inconsistent)
		yield(s, random)
		if t.Failed() {
			t.Fatalf("in scenario %d: %v", i, s)
		}
	}
}
