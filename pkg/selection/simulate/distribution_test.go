package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

const rack policy.Key = "example.com/rack"

// scenario is a small cluster with one Service port.
type scenario struct {
	nodes []model.Node
	input Query
}

func newScenario(random *rand.Rand) scenario {
	var s scenario
	oneIn := func(chances int) bool { return random.IntN(chances) == 0 }
	word := func(prefix string, count int) string { return prefix + fmt.Sprint(random.IntN(count)) }
	for i := range 1 + random.IntN(12) {
		node := model.Node{Name: fmt.Sprint("node-", i), Labels: map[string]string{}}
		for key, value := range map[policy.Key]string{policy.Zone: word("z", 3), Region: word("r", 2), rack: word("k", 4)} {
			if !oneIn(8) {
				node.Labels[string(key)] = value
			}
		}
		if oneIn(4) {
			node.Labels[policy.DemandLabel] = fmt.Sprint(random.IntN(4))
		}
		s.nodes = append(s.nodes, node)
	}
	slices.SortFunc(s.nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) }) // refusers are by name
	anyNode := func() string {
		if oneIn(10) {
			return "" // otherwise the name may be that of a node that does not exist
		}
		return word("node-", len(s.nodes)+1)
	}
	evacuated := map[string]*model.Demotion{anyNode(): {}, anyNode(): {}}
	if oneIn(2) {
		evacuated = nil
	}
	hasZoneHints, hasNodeHints, unreadyChances := oneIn(2), oneIn(2), 1+random.IntN(8)
	for i := range random.IntN(9) {
		endpoint := model.PortEndpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)}
		endpoint.Node, endpoint.Ready, endpoint.Serving, endpoint.Terminating = anyNode(), !oneIn(unreadyChances), !oneIn(3), oneIn(2)
		if index := slices.IndexFunc(s.nodes, func(n model.Node) bool { return n.Name == endpoint.Node }); index >= 0 && !oneIn(3) {
			endpoint.Zone = s.nodes[index].Labels[string(policy.Zone)]
		}
		if hasZoneHints && !oneIn(20) {
			endpoint.HintZones = slices.Compact([]string{word("z", 3), word("z", 4)}) // no duplicates, as in package convert
		}
		if hasNodeHints && !oneIn(20) {
			endpoint.HintNodes = slices.Compact([]string{word("node-", 9), max(endpoint.Node, "node-0")})
		}
		endpoint.Demotion = evacuated[endpoint.Node]
		s.input.Endpoints = append(s.input.Endpoints, endpoint)
	}
	s.input.IsLocal = oneIn(6)
	keys := []policy.Key{policy.Hostname, rack, policy.Zone, Region}
	if oneIn(3) {
		return s
	}
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+random.IntN(4)]
	if oneIn(2) {
		keys = append(keys, policy.AnyNode)
	}
	s.input.Topology.Keys = keys
	if oneIn(2) {
		s.input.Topology.MaxLoad = uint64(100 + random.IntN(200))
	}
	if s.input.Topology.MaxLoad > 0 && oneIn(2) {
		s.input.Topology.Clients, s.input.Clients = []string{"shop/web"}, map[string]uint32{}
		for range random.IntN(4) {
			s.input.Clients[anyNode()] = uint32(random.IntN(3))
		}
	}
	return s
}

// measure gives some nodes a measured demand on this Service, and sometimes enables measured zone demand for bounds.
func (s *scenario) measure(random *rand.Rand) {
	s.input.NodeDemand, s.input.Topology.Measured = map[string]float64{}, random.IntN(2) == 0
	for range random.IntN(5) {
		s.input.NodeDemand[fmt.Sprint("node-", random.IntN(len(s.nodes)+1))] = float64(random.IntN(4)) / 3
	}
	if random.IntN(3) > 0 {
		s.input.Measured = &model.Demand{Zones: map[string]uint32{}}
		for _, node := range s.nodes {
			s.input.Measured.Zones[node.Labels[string(policy.Zone)]] = uint32(random.IntN(4) * 100_000)
		}
	}
}

// sumOverNodes decides for each node like the proxy on it, and sums up the connections.
func sumOverNodes(s scenario, demand func(*model.Node) float64) Distribution {
	q, byName := s.input, map[string]map[string]string{}
	for _, node := range s.nodes {
		byName[node.Name] = node.Labels
	}
	out := Distribution{Loads: make([]float64, len(q.Endpoints)), Keys: make([]float64, len(q.Topology.Keys))}
	service := model.Service{Topology: q.Topology, InternalTrafficLocal: q.IsLocal, Name: model.ObjectName{Namespace: "shop", Name: "web"}}
	for i := range s.nodes {
		node := &s.nodes[i]
		viewpoint := selection.NodeView{
			Node: *node,
			Labels: func(node string) (map[string]string, bool) {
				labels, known := byName[node]
				return labels, known
			},
			Demand: func(*model.Service) (balance.Demand, bool) {
				keys := q.Topology.Keys
				if q.Topology.Measured {
					keys = selection.WithZone(keys)
				}
				classes := balance.NewNodeClasses(keys, node.Name)
				for _, other := range s.nodes {
					classes.Set(other.Name, other.Labels)
				}
				if q.Topology.Measured && q.Measured != nil {
					if demand, hasDemand := classes.Measured(q.Measured); hasDemand {
						return demand, true
					}
				}
				if len(q.Topology.Clients) > 0 {
					return classes.Named(q.Clients), true
				}
				return classes.ByLabels(), true
			},
		}
		choice, outcome := selection.Select(&service, false, q.Endpoints, viewpoint).ClusterIP()
		amount := demand(node)
		out.Demand += amount
		if amount > 0 {
			out.Refusers.WithDemand++
		}
		if outcome != selection.Balance {
			out.Refused += amount
			if amount > 0 {
				if out.Refusers.Count++; out.Refusers.Count == 1 {
					out.Refusers.Reason = choice.Reason
				}
				out.Refusers.First = append(out.Refusers.First, node.Name)
			}
			continue
		}
		for e := range q.Endpoints {
			endpoint, amountToEndpoint := &q.Endpoints[e], 0.0
			index := slices.IndexFunc(choice.Endpoints, func(c model.PortEndpoint) bool { return c.Addr == endpoint.Addr })
			switch {
			case choice.Share != nil:
				amountToEndpoint = float64(choice.Share.Fractions[e]) / balance.One
			case index >= 0:
				amountToEndpoint = 1 / float64(len(choice.Endpoints))
			}
			amountToEndpoint *= amount
			out.Loads[e] += amountToEndpoint
			if endpoint.Demotion != nil && amountToEndpoint > 0 && !slices.Contains(out.OnlyEvacuated, node.Name) {
				out.OnlyEvacuated = append(out.OnlyEvacuated, node.Name)
			}
			zone, _ := viewpoint.ValueOf(endpoint, policy.Zone)
			region, _ := viewpoint.ValueOf(endpoint, Region)
			isLocal, nodeValue := endpoint.Node == node.Name, node.Labels[string(policy.Zone)]
			if isLocal {
				out.Node += amountToEndpoint
			}
			inZone := isLocal || nodeValue != "" && nodeValue == zone
			switch {
			case inZone:
				out.Zone += amountToEndpoint
			case nodeValue != "" && zone != "":
				out.OtherZones += amountToEndpoint
			}
			if nodeValue := node.Labels[string(Region)]; inZone || nodeValue != "" && nodeValue == region {
				out.Region += amountToEndpoint
			}
		}
		if choice.Share != nil {
			for k, result := range choice.Share.KeyResults {
				out.Keys[k] += amount * float64(result.Fraction) / balance.One
			}
		} else if k := slices.Index(q.Topology.Keys, policy.Key(choice.Tier)); k >= 0 {
			out.Keys[k] += amount
		}
	}
	return out
}

func TestDistributionIsTheSumOverAllNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 1))
	seen := map[string]int{}
	for round := range 60_000 {
		s := newScenario(random)
		var demand Demand
		if round%5 == 0 {
			given := map[string]float64{}
			for _, node := range s.nodes {
				given[node.Name] = float64(random.IntN(3)) / 2
			}
			given[s.nodes[0].Name] += 1
			demand = func(node *model.Node) float64 { return given[node.Name] }
		}
		if round%3 == 0 {
			s.measure(random)
		}
		simulator := New(s.nodes, demand)
		got := simulator.Distribute(s.input)
		demands := simulator.serviceDemandOf(&s.input)
		byNode, _ := simulator.demandByNode(&s.input, &demands)
		nodeDemand := func(node *model.Node) float64 {
			if byNode != nil {
				return byNode[simulator.byName[node.Name]]
			}
			return simulator.demand[simulator.byName[node.Name]]
		}
		want := sumOverNodes(s, nodeDemand)
		compare := func(what string, got, want []float64) {
			if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				t.Errorf("round %d: %s are %v, want the sum over all nodes, %v\n%+v", round, what, got, want, s)
			}
		}
		compare("sums", []float64{got.Demand, got.Refused, got.Node, got.Zone, got.Region, got.OtherZones},
			[]float64{want.Demand, want.Refused, want.Node, want.Zone, want.Region, want.OtherZones})
		if want.Refusers.Count == 0 {
			want.Refusers = RefusingNodes{}
		}
		want.Refusers.First = want.Refusers.First[:min(len(want.Refusers.First), MaxNamed)]
		if diff := cmp.Diff(want.Refusers, got.Refusers, cmp.Comparer(func(a, b selection.Reason) bool { return a == b })); diff != "" {
			t.Errorf("round %d: refusing nodes (-want +got):\n%s\n%+v", round, diff, s)
		}
		if !slices.Equal(got.OnlyEvacuated, want.OnlyEvacuated) {
			t.Errorf("round %d: OnlyEvacuated is %v, want %v\n%+v", round, got.OnlyEvacuated, want.OnlyEvacuated, s)
		}
		compare("loads", got.Loads, want.Loads)
		if !s.input.IsLocal {
			compare("keys", got.Keys, want.Keys)
		}
		all := 0.0
		for _, amount := range got.Zones {
			all += amount
		}
		compare("matrix sums", []float64{all}, []float64{got.Demand - got.Refused})
		if t.Failed() {
			return
		}
		seen[kindOf(s)]++
	}
	for _, kind := range []string{"local", "hints", "keys", "bound", "clients"} {
		if seen[kind] < 1000 {
			t.Errorf("only %d scenarios with %s, want at least 1000", seen[kind], kind)
		}
	}
}

func kindOf(s scenario) string {
	switch topology := s.input.Topology; {
	case s.input.IsLocal:
		return "local"
	case len(topology.Keys) == 0:
		return "hints"
	case topology.MaxLoad == 0:
		return "keys"
	case len(topology.Clients) == 0:
		return "bound"
	}
	return "clients"
}
