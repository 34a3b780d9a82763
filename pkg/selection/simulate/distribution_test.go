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
type world struct {
	nodes []model.Node
	input Query
}

func newWorld(random *rand.Rand) world {
	var w world
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
		w.nodes = append(w.nodes, node)
	}
	slices.SortFunc(w.nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) }) // refusers are by name
	anyNode := func() string {
		if oneIn(10) {
			return "" // otherwise the name may be that of a node that does not exist
		}
		return word("node-", len(w.nodes)+1)
	}
	evacuated := map[string]*model.Demotion{anyNode(): {}, anyNode(): {}}
	if oneIn(2) {
		evacuated = nil
	}
	hintsZones, hintsNodes, mostlyReady := oneIn(2), oneIn(2), 1+random.IntN(8)
	for i := range random.IntN(9) {
		endpoint := model.PortEndpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)}
		endpoint.Node, endpoint.Ready, endpoint.Serving, endpoint.Terminating = anyNode(), !oneIn(mostlyReady), !oneIn(3), oneIn(2)
		if at := slices.IndexFunc(w.nodes, func(n model.Node) bool { return n.Name == endpoint.Node }); at >= 0 && !oneIn(3) {
			endpoint.Zone = w.nodes[at].Labels[string(policy.Zone)]
		}
		if hintsZones && !oneIn(20) {
			endpoint.HintZones = slices.Compact([]string{word("z", 3), word("z", 4)}) // no duplicates, as in package convert
		}
		if hintsNodes && !oneIn(20) {
			endpoint.HintNodes = slices.Compact([]string{word("node-", 9), max(endpoint.Node, "node-0")})
		}
		endpoint.Demotion = evacuated[endpoint.Node]
		w.input.Endpoints = append(w.input.Endpoints, endpoint)
	}
	w.input.IsLocal = oneIn(6)
	keys := []policy.Key{policy.Hostname, rack, policy.Zone, Region}
	if oneIn(3) {
		return w
	}
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+random.IntN(4)]
	if oneIn(2) {
		keys = append(keys, policy.AnyNode)
	}
	w.input.Topology.Keys = keys
	if oneIn(2) {
		w.input.Topology.MaxLoad = uint64(100 + random.IntN(200))
	}
	if w.input.Topology.MaxLoad > 0 && oneIn(2) {
		w.input.Topology.Clients, w.input.Clients = []string{"shop/web"}, map[string]uint32{}
		for range random.IntN(4) {
			w.input.Clients[anyNode()] = uint32(random.IntN(3))
		}
	}
	return w
}

// measure gives some nodes a measured demand on this Service, and sometimes enables measured zone demand for bounds.
func (w *world) measure(random *rand.Rand) {
	w.input.NodeDemand, w.input.Topology.Measured = map[string]float64{}, random.IntN(2) == 0
	for range random.IntN(5) {
		w.input.NodeDemand[fmt.Sprint("node-", random.IntN(len(w.nodes)+1))] = float64(random.IntN(4)) / 3
	}
	if random.IntN(3) > 0 {
		w.input.Measured = &model.Demand{Zones: map[string]uint32{}}
		for _, node := range w.nodes {
			w.input.Measured.Zones[node.Labels[string(policy.Zone)]] = uint32(random.IntN(4) * 100_000)
		}
	}
}

// sumOverNodes decides for each node like the proxy on it, and sums up the connections.
func nodeByNode(w world, demand func(*model.Node) float64) Distribution {
	q, byName := w.input, map[string]map[string]string{}
	for _, node := range w.nodes {
		byName[node.Name] = node.Labels
	}
	out := Distribution{Loads: make([]float64, len(q.Endpoints)), Keys: make([]float64, len(q.Topology.Keys))}
	service := model.Service{Topology: q.Topology, InternalTrafficLocal: q.IsLocal, Name: model.ObjectName{Namespace: "shop", Name: "web"}}
	for i := range w.nodes {
		node := &w.nodes[i]
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
				for _, other := range w.nodes {
					classes.Set(other.Name, other.Labels)
				}
				if q.Topology.Measured && q.Measured != nil {
					if demand, any := classes.Measured(q.Measured.Zones); any {
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
			out.Refusers.Total++
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
			endpoint, part := &q.Endpoints[e], 0.0
			at := slices.IndexFunc(choice.Endpoints, func(c model.PortEndpoint) bool { return c.Addr == endpoint.Addr })
			switch {
			case choice.Share != nil:
				part = float64(choice.Share.Fractions[e]) / balance.One
			case at >= 0:
				part = 1 / float64(len(choice.Endpoints))
			}
			part *= amount
			out.Loads[e] += part
			if endpoint.Demotion != nil && part > 0 && !slices.Contains(out.OnlyEvacuated, node.Name) {
				out.OnlyEvacuated = append(out.OnlyEvacuated, node.Name)
			}
			zone, _ := viewpoint.ValueOf(endpoint, policy.Zone)
			region, _ := viewpoint.ValueOf(endpoint, Region)
			isHere, own := endpoint.Node == node.Name, node.Labels[string(policy.Zone)]
			if isHere {
				out.Node += part
			}
			inZone := isHere || own != "" && own == zone
			switch {
			case inZone:
				out.Zone += part
			case own != "" && zone != "":
				out.OtherZones += part
			}
			if own := node.Labels[string(Region)]; inZone || own != "" && own == region {
				out.Region += part
			}
		}
		if choice.Share != nil {
			for k, step := range choice.Share.KeyResults {
				out.Keys[k] += amount * float64(step.Fraction) / balance.One
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
		w := newWorld(random)
		var demand Demand
		if round%5 == 0 {
			given := map[string]float64{}
			for _, node := range w.nodes {
				given[node.Name] = float64(random.IntN(3)) / 2
			}
			given[w.nodes[0].Name] += 1
			demand = func(node *model.Node) float64 { return given[node.Name] }
		}
		if round%3 == 0 {
			w.measure(random)
		}
		simulator := New(w.nodes, demand)
		got := simulator.Distribute(w.input)
		demands := simulator.serviceDemandOf(&w.input)
		byNode, _ := simulator.demandByNode(&w.input, &demands)
		nodeDemand := func(node *model.Node) float64 {
			if byNode != nil {
				return byNode[simulator.byName[node.Name]]
			}
			return simulator.demand[simulator.byName[node.Name]]
		}
		want := nodeByNode(w, nodeDemand)
		compare := func(what string, got, want []float64) {
			if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				t.Errorf("round %d: %s are %v, want the sum over all nodes, %v\n%+v", round, what, got, want, w)
			}
		}
		compare("sums", []float64{got.Demand, got.Refused, got.Node, got.Zone, got.Region, got.OtherZones},
			[]float64{want.Demand, want.Refused, want.Node, want.Zone, want.Region, want.OtherZones})
		if want.Refusers.Count == 0 {
			want.Refusers = RefusingNodes{}
		}
		want.Refusers.First = want.Refusers.First[:min(len(want.Refusers.First), MaxNamed)]
		if diff := cmp.Diff(want.Refusers, got.Refusers, cmp.Comparer(func(a, b selection.Reason) bool { return a == b })); diff != "" {
			t.Errorf("round %d: refusing nodes (-want +got):\n%s\n%+v", round, diff, w)
		}
		if !slices.Equal(got.OnlyEvacuated, want.OnlyEvacuated) {
			t.Errorf("round %d: OnlyEvacuated is %v, want %v\n%+v", round, got.OnlyEvacuated, want.OnlyEvacuated, w)
		}
		compare("loads", got.Loads, want.Loads)
		if !w.input.IsLocal {
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
		seen[kindOf(w)]++
	}
	for _, kind := range []string{"local", "hints", "keys", "bound", "clients"} {
		if seen[kind] < 1000 {
			t.Errorf("only %d scenarios with %s, want at least 1000", seen[kind], kind)
		}
	}
}

func kindOf(w world) string {
	switch topology := w.input.Topology; {
	case w.input.IsLocal:
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
