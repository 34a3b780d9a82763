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
	inMatrix       []string // the zones with a row of their own in a matrix
	rows           []int32  // of each zone in a matrix

	censuses map[string]*partition
}

// MaxZones is the maximum number of zones that a matrix names: those with most demand. All others, and nodes and
// endpoints whose zone is unknown, share one row and one column.
const MaxZones = 16

// New returns a simulator for some nodes. If demand is nil, each node has the demand of its labels (policy.DemandOf),
// and a Service's own clients override that. If there is no demand at all, all nodes count alike. Nodes that do not run
// Linux are no clients, whatever the demand: they only host endpoints.
func New(nodes []model.Node, demand Demand) *Simulator {
	f := &Simulator{
		nodes:  slices.SortedFunc(slices.Values(nodes), func(a, b model.Node) int { return cmp.Compare(a.Name, b.Name) }),
		byName: make(map[string]int32, len(nodes)), demand: make([]float64, len(nodes)), isGiven: demand != nil,
		zoneOf: make([]int32, len(nodes)), regionOf: make([]int32, len(nodes)), pairs: map[[2]int32]int32{},
		censuses: map[string]*partition{},
	}
	all := 0.0
	for i := range f.nodes {
		node := &f.nodes[i]
		f.byName[node.Name] = int32(i)
		f.zoneOf[i], f.regionOf[i] = f.zones.number(node.Labels[string(policy.Zone)]), f.regions.number(node.Labels[string(Region)])
		f.demand[i] = demandOf(node, demand)
		if pair := [2]int32{f.zoneOf[i], f.regionOf[i]}; pair[0] > 0 && pair[1] > 0 && f.pairs[pair] == 0 {
			f.pairs[pair] = int32(len(f.pairs) + 1)
		}
		all += f.demand[i]
	}
	if all == 0 {
		for i := range f.demand {
			f.demand[i] = demandOf(&f.nodes[i], func(*model.Node) float64 { return 1 })
		}
	}
	f.view = selection.NodeView{Labels: f.Labels}
	f.rankZones()
	return f
}

// demandOf returns a node's demand. Clients on nodes that do not run Linux use another proxy, so their demand is 0.
func demandOf(node *model.Node, demand Demand) float64 {
	switch {
	case !policy.IsLinux(node.Labels):
		return 0
	case demand != nil:
		return demand(node)
	}
	asks, _ := policy.DemandOf(node.Labels)
	return float64(asks)
}

// rankZones assigns the zones with most demand a row of their own in a matrix, sorted by name.
func (f *Simulator) rankZones() {
	demand := make([]float64, len(f.zones.numbers)+1)
	for i, zone := range f.zoneOf {
		demand[zone] += f.demand[i]
	}
	f.inMatrix = slices.Sorted(maps.Keys(f.zones.numbers))
	slices.SortStableFunc(f.inMatrix, func(a, b string) int {
		return cmp.Compare(demand[f.zones.numbers[b]], demand[f.zones.numbers[a]])
	})
	f.inMatrix = f.inMatrix[:min(len(f.inMatrix), MaxZones)]
	slices.Sort(f.inMatrix)
	f.rows = slices.Repeat([]int32{int32(len(f.inMatrix))}, len(f.zones.numbers)+1)
	for row, zone := range f.inMatrix {
		f.rows[f.zones.numbers[zone]] = int32(row)
	}
}

// Zones returns the names of a matrix's rows and columns in order, without the last row and column, which are for all
// other zones.
func (f *Simulator) Zones() []string { return slices.Clone(f.inMatrix) }

// ZonesInAll returns the number of zones that have nodes, including those without a row.
func (f *Simulator) ZonesInAll() int { return len(f.rows) - 1 }

func (f *Simulator) row(zone int32) int {
	if int(zone) < len(f.rows) {
		return int(f.rows[zone])
	}
	return int(f.rows[0]) // the zone of an endpoint, but of no node
}

// ZoneOf returns the zone of an endpoint, or an empty string if it is unknown.
func (f *Simulator) ZoneOf(endpoint *model.PortEndpoint) string {
	zone, _ := f.view.ValueOf(endpoint, policy.Zone)
	return zone
}

// Labels returns the labels of a node, and whether the simulator has the node.
func (f *Simulator) Labels(node string) (labels map[string]string, known bool) {
	i, known := f.byName[node]
	if !known {
		return nil, false
	}
	return f.nodes[i].Labels, true
}

// partition has the nodes, partitioned by one list of keys.
type partition struct {
	crowds []nodeClass
	of     []int32 // the class of each node
	cells  *balance.NodeClasses
}

// nodeClass is a set of nodes with the same values of all keys but the hostname, in one zone and one region.
type nodeClass struct {
	node           int32 // one of them
	demandingNodes int   // number of those with any demand
	demand         float64
	zone, region   int32
}

func (c *nodeClass) add(demand float64) {
	if demand > 0 {
		c.demandingNodes++
		c.demand += demand
	}
}

func (c *nodeClass) subtract(demand float64) {
	if demand > 0 {
		c.demandingNodes--
		c.demand -= demand
	}
}

// maxPartitions bounds the partitions that are cached. Users may write any number of lists of keys.
const maxPartitions = 64

// partitionOf returns the nodes, partitioned by a list of keys.
func (f *Simulator) partitionOf(keys []policy.Key) *partition {
	words := make([]string, len(keys))
	for i, key := range keys {
		words[i] = string(key)
	}
	name := strings.Join(words, ",")
	if known := f.censuses[name]; known != nil {
		return known
	}
	if len(f.censuses) == maxPartitions {
		clear(f.censuses)
	}
	c := &partition{of: make([]int32, len(f.nodes)), cells: balance.NewNodeClasses(keys, "")}
	index, values := map[[policy.MaxKeys + 2]int32]int32{}, make([]interner, len(keys))
	for i := range f.nodes {
		node := &f.nodes[i]
		c.cells.Set(node.Name, node.Labels)
		tuple := [policy.MaxKeys + 2]int32{f.zoneOf[i], f.regionOf[i]}
		for k, key := range keys {
			if value, carried := node.Labels[string(key)]; carried && key != policy.Hostname {
				tuple[2+k] = values[k].numberOf(value)
			}
		}
		at, known := index[tuple]
		if !known {
			at = int32(len(c.crowds))
			index[tuple] = at
			c.crowds = append(c.crowds, nodeClass{node: int32(i), zone: f.zoneOf[i], region: f.regionOf[i]})
		}
		c.of[i] = at
		c.crowds[at].add(f.demand[i])
	}
	f.censuses[name] = c
	return c
}

// interner numbers strings from 1. 0 means no string.
type interner struct {
	numbers map[string]int32
}

// number returns the number of a string. A new one gets the next number, the empty one 0.
func (v *interner) number(word string) int32 {
	if word == "" {
		return 0
	}
	return v.numberOf(word)
}

func (v *interner) numberOf(word string) int32 {
	if number, known := v.numbers[word]; known {
		return number
	}
	if v.numbers == nil {
		v.numbers = map[string]int32{}
	}
	v.numbers[word] = int32(len(v.numbers) + 1)
	return v.numbers[word]
}
