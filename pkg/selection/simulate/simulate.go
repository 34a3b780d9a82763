package simulate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Region is the Node label with the node's region.
const Region policy.Key = "topology.kubernetes.io/region"

// Demand returns a node's demand relative to other nodes.
type Demand func(node *model.Node) float64

// Simulator has the nodes of a cluster as clients. It is not safe for concurrent use.
type Simulator struct {
	nodes  []model.Node // by name
	byName map[string]int32
	demand []float64 // by node
	// isGiven is set if the nodes' demand is given, which overrides the clients that a Service names.
	isGiven bool

	zones, regions interner
	zoneOf         []int32 // by node
	regionOf       []int32
	pairs          map[[2]int32]int32 // numbers of zones with their regions, from 1, where both are known
	view           selection.NodeView
	matrixZones    []string // the zones with a row of their own in a matrix
	rows           []int32  // the row of each zone in a matrix

	partitions map[string]*partition
}

// MaxZones is the maximum number of zones that a matrix names: those with most demand. All others, and nodes and
// endpoints whose zone is unknown, share one row and one column.
const MaxZones = 16

// New returns a simulator for some nodes. If demand is nil, each node has the demand of its labels (policy.DemandOf),
// and a Service's own clients override that. If there is no demand at all, all nodes count alike. Nodes that do not run
// Linux are no clients, whatever the demand: they only host endpoints.
func New(nodes []model.Node, demand Demand) *Simulator {
	sim := &Simulator{
		nodes:  slices.SortedFunc(slices.Values(nodes), func(a, b model.Node) int { return cmp.Compare(a.Name, b.Name) }),
		byName: make(map[string]int32, len(nodes)), demand: make([]float64, len(nodes)), isGiven: demand != nil,
		zoneOf: make([]int32, len(nodes)), regionOf: make([]int32, len(nodes)), pairs: map[[2]int32]int32{},
		partitions: map[string]*partition{},
	}
	all := 0.0
	for i := range sim.nodes {
		node := &sim.nodes[i]
		sim.byName[node.Name] = int32(i)
		sim.zoneOf[i], sim.regionOf[i] = sim.zones.number(node.Labels[string(policy.Zone)]), sim.regions.number(node.Labels[string(Region)])
		sim.demand[i] = demandOf(node, demand)
		if pair := [2]int32{sim.zoneOf[i], sim.regionOf[i]}; pair[0] > 0 && pair[1] > 0 && sim.pairs[pair] == 0 {
			sim.pairs[pair] = int32(len(sim.pairs) + 1)
		}
		all += sim.demand[i]
	}
	if all == 0 {
		for i := range sim.demand {
			sim.demand[i] = demandOf(&sim.nodes[i], func(*model.Node) float64 { return 1 })
		}
	}
	sim.view = selection.NodeView{Labels: sim.Labels}
	sim.rankZones()
	return sim
}

// demandOf returns a node's demand. Clients on nodes that do not run Linux use another proxy, so their demand is 0.
func demandOf(node *model.Node, demand Demand) float64 {
	switch {
	case !policy.IsLinux(node.Labels):
		return 0
	case demand != nil:
		return demand(node)
	}
	weight, _ := policy.DemandOf(node.Labels)
	return float64(weight)
}

// rankZones assigns the zones with most demand a row of their own in a matrix, sorted by name.
func (sim *Simulator) rankZones() {
	demand := make([]float64, len(sim.zones.numbers)+1)
	for i, zone := range sim.zoneOf {
		demand[zone] += sim.demand[i]
	}
	sim.matrixZones = slices.Sorted(maps.Keys(sim.zones.numbers))
	slices.SortStableFunc(sim.matrixZones, func(a, b string) int {
		return cmp.Compare(demand[sim.zones.numbers[b]], demand[sim.zones.numbers[a]])
	})
	sim.matrixZones = sim.matrixZones[:min(len(sim.matrixZones), MaxZones)]
	slices.Sort(sim.matrixZones)
	sim.rows = slices.Repeat([]int32{int32(len(sim.matrixZones))}, len(sim.zones.numbers)+1)
	for row, zone := range sim.matrixZones {
		sim.rows[sim.zones.numbers[zone]] = int32(row)
	}
}

// Zones returns the names of a matrix's rows and columns in order, without the last row and column, which are for all
// other zones.
func (sim *Simulator) Zones() []string { return slices.Clone(sim.matrixZones) }

// ZoneCount returns the number of zones that have nodes, including those without a row.
func (sim *Simulator) ZoneCount() int { return len(sim.rows) - 1 }

func (sim *Simulator) row(zone int32) int {
	if int(zone) < len(sim.rows) {
		return int(sim.rows[zone])
	}
	return int(sim.rows[0]) // the zone of an endpoint, but of no node
}

// ZoneOf returns the zone of an endpoint, or an empty string if it is unknown.
func (sim *Simulator) ZoneOf(endpoint *model.PortEndpoint) string {
	zone, _ := sim.view.ValueOf(endpoint, policy.Zone)
	return zone
}

// Labels returns the labels of a node, and whether the simulator has the node.
func (sim *Simulator) Labels(node string) (labels map[string]string, known bool) {
	i, known := sim.byName[node]
	if !known {
		return nil, false
	}
	return sim.nodes[i].Labels, true
}

// partition has the nodes, partitioned by one list of keys.
type partition struct {
	classes     []nodeClass
	classOf     []int32 // the class of each node
	nodeClasses *balance.NodeClasses
}

// nodeClass is a set of nodes with the same values of all keys but the hostname, in one zone and one region.
type nodeClass struct {
	node            int32 // one of them
	nodesWithDemand int   // number of those with any demand
	demand          float64
	zone, region    int32
}

func (c *nodeClass) add(demand float64) {
	if demand > 0 {
		c.nodesWithDemand++
		c.demand += demand
	}
}

func (c *nodeClass) subtract(demand float64) {
	if demand > 0 {
		c.nodesWithDemand--
		c.demand -= demand
	}
}

// maxPartitions bounds the partitions that are cached. Users may write any number of lists of keys.
const maxPartitions = 64

// partitionOf returns the nodes, partitioned by a list of keys.
func (sim *Simulator) partitionOf(keys []policy.Key) *partition {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = string(key)
	}
	name := strings.Join(names, ",")
	if known := sim.partitions[name]; known != nil {
		return known
	}
	if len(sim.partitions) == maxPartitions {
		clear(sim.partitions)
	}
	p := &partition{classOf: make([]int32, len(sim.nodes)), nodeClasses: balance.NewNodeClasses(keys, "")}
	index, values := map[[policy.MaxKeys + 2]int32]int32{}, make([]interner, len(keys))
	for i := range sim.nodes {
		node := &sim.nodes[i]
		p.nodeClasses.Set(node.Name, node.Labels)
		tuple := [policy.MaxKeys + 2]int32{sim.zoneOf[i], sim.regionOf[i]}
		for k, key := range keys {
			if value, hasLabel := node.Labels[string(key)]; hasLabel && key != policy.Hostname {
				tuple[2+k] = values[k].numberOf(value)
			}
		}
		number, known := index[tuple]
		if !known {
			number = int32(len(p.classes))
			index[tuple] = number
			p.classes = append(p.classes, nodeClass{node: int32(i), zone: sim.zoneOf[i], region: sim.regionOf[i]})
		}
		p.classOf[i] = number
		p.classes[number].add(sim.demand[i])
	}
	sim.partitions[name] = p
	return p
}

// interner numbers strings from 1. 0 means no string.
type interner struct {
	numbers map[string]int32
}

// number returns the number of a string. A new one gets the next number, the empty one 0.
func (in *interner) number(text string) int32 {
	if text == "" {
		return 0
	}
	return in.numberOf(text)
}

func (in *interner) numberOf(text string) int32 {
	if number, known := in.numbers[text]; known {
		return number
	}
	if in.numbers == nil {
		in.numbers = map[string]int32{}
	}
	in.numbers[text] = int32(len(in.numbers) + 1)
	return in.numbers[text]
}
