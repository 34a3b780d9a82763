package selection

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// NodeGrouper groups nodes that decide alike about a Service, without deciding for each of them. Nodes decide alike if
// they have the same values of the keys that the decision reads. For a key with many values, and for hostnames, hints
// for nodes and Local policies, it is enough that equally many endpoints of each kind share the node's value: the
// decision for one node then holds for the other, with its own value and its own endpoints. So the cost is the sum of
// nodes and endpoints, not their product.
type NodeGrouper struct {
	nodes     []*model.Node
	columns   map[string]*column
	addresses map[netip.Addr]bool // of all nodes
	cache     map[string][]Group  // by dimensions, for Services whose endpoints make no difference
}

// Group is a set of nodes that decide alike.
type Group struct {
	Nodes []int32 // ascending, never empty
	// Shared are the keys whose values may differ between the nodes, each shared by equally many endpoints. Unshared are
	// the keys whose values no endpoint shares. TierForZones and TierForNodes stand for hints. OnNode is set if each node
	// hosts equally many endpoints.
	Shared, Unshared []string
	OnNode           bool
}

// maxDistinctValues is the number of values of a key up to which nodes with different values are always in different
// groups. With more values, nodes differ only by how many endpoints share their value.
const maxDistinctValues = 16

// NewNodeGrouper returns the grouper of some nodes. Their order determines the order of groups.
func NewNodeGrouper(nodes []*model.Node) *NodeGrouper {
	g := &NodeGrouper{nodes: nodes, columns: map[string]*column{}, addresses: map[netip.Addr]bool{}, cache: map[string][]Group{}}
	for _, node := range nodes {
		for _, addr := range node.Addresses {
			g.addresses[addr] = true
		}
	}
	return g
}

// column has each node's value of a key, as a number. 0 means that the node has none.
type column struct {
	byNode []int32
	values []string // by number
}

// dimension is a topology key, or another property by which a decision matches endpoints with a node.
type dimension struct {
	name           string
	valueOf        func(node *model.Node) (value string, has bool)
	endpointValues func(endpoint *model.PortEndpoint) []string
	// isUnique is set if each node has a unique value.
	isUnique bool

	*column
	entries map[string][]int32 // indices into shapes.located, by value
}

// isExact reports whether nodes with different values are always in different groups.
func (d *dimension) isExact() bool { return !d.isUnique && len(d.values) <= maxDistinctValues+1 }

// onNode names the dimension of Local policies.
const onNode = "onNode"

// dimensionsOf returns the dimensions in which a decision may compare a node with endpoints. Those in which each node
// has a unique value are last.
func (g *NodeGrouper) dimensionsOf(decisions []Decision) (list []dimension) {
	service, viewpoint := decisions[0].Service, decisions[0].Viewpoint
	nameOf := func(node *model.Node) (string, bool) { return node.Name, true }
	needsNodeNames := service.InternalTrafficLocal || service.ExternalTrafficLocal
	nodeNameDimension := onNode
	for _, key := range service.Topology.Keys {
		switch key {
		case policy.AnyNode:
		case policy.Hostname:
			needsNodeNames, nodeNameDimension = true, string(key)
		default:
			list = append(list, dimension{
				name:    string(key),
				valueOf: func(node *model.Node) (string, bool) { return balance.NodeValue(key, node.Name, node.Labels) },
				endpointValues: func(endpoint *model.PortEndpoint) []string {
					if value, known := viewpoint.ValueOf(endpoint, key); known {
						return []string{value}
					}
					return nil
				},
			})
		}
	}
	if len(service.Topology.Keys) == 0 {
		hasZoneHints, hasNodeHints := false, false
		for i := range decisions {
			for j := range decisions[i].Endpoints {
				hasZoneHints = hasZoneHints || len(decisions[i].Endpoints[j].HintZones) > 0
				hasNodeHints = hasNodeHints || len(decisions[i].Endpoints[j].HintNodes) > 0
			}
		}
		if hasZoneHints {
			zoneOf := func(node *model.Node) (string, bool) { return node.Labels[string(policy.Zone)], true }
			list = append(list, dimension{name: TierForZones, valueOf: zoneOf, endpointValues: forZones})
		}
		if hasNodeHints {
			list = append(list, dimension{name: TierForNodes, valueOf: nameOf, endpointValues: forNodes, isUnique: true})
		}
	}
	if needsNodeNames {
		list = append(list, dimension{name: nodeNameDimension, valueOf: nameOf, isUnique: true,
			endpointValues: func(endpoint *model.PortEndpoint) []string {
				if endpoint.Node == "" {
					return nil
				}
				return []string{endpoint.Node}
			}})
	}
	for i := range list {
		list[i].column = g.columnOf(&list[i])
	}
	return list
}

func (g *NodeGrouper) columnOf(d *dimension) *column {
	if cached := g.columns[d.name]; cached != nil {
		return cached
	}
	c := &column{byNode: make([]int32, len(g.nodes)), values: []string{""}}
	numbers := map[string]int32{}
	for i, node := range g.nodes {
		value, has := d.valueOf(node)
		if !has {
			continue
		}
		if numbers[value] == 0 {
			numbers[value] = int32(len(c.values))
			c.values = append(c.values, value)
		}
		c.byNode[i] = numbers[value]
	}
	g.columns[d.name] = c
	return c
}

// maxDimensions bounds the dimensions of a Service: its keys, and those of its policies.
const maxDimensions = policy.MaxKeys + 2

// groupKey has what nodes of one group have in common.
type groupKey struct {
	states      [maxDimensions]int32
	addressCode int32 // see addressCodeOf
	outline     int32 // number of their outline, see outlineOf
}

// isShared reports whether endpoints share the node's value in a dimension that is not exact.
func (k *groupKey) isShared(dimensions []dimension) bool {
	for i := range dimensions {
		if !dimensions[i].isExact() && k.states[i] >= firstShape {
			return true
		}
	}
	return false
}

// Groups returns the groups of all nodes, given the decisions of one of them about a Service.
func (g *NodeGrouper) Groups(decisions []Decision) []Group {
	service, dimensions := decisions[0].Service, g.dimensionsOf(decisions)
	names, isExact := make([]string, len(dimensions)), true
	for i := range dimensions {
		names[i], isExact = dimensions[i].name, isExact && dimensions[i].isExact()
	}
	key := strings.Join(names, ",")
	dependsOnAddresses := len(service.SourceRanges) > 0 ||
		slices.ContainsFunc(service.ExternalIPs, func(addr netip.Addr) bool { return g.addresses[addr] })
	isExact = isExact && !dependsOnAddresses
	if known := g.cache[key]; isExact && known != nil {
		return known
	}
	var endpointShapes *shapes
	if !isExact {
		endpointShapes = newShapes(dimensions, decisions)
	}
	var groups []Group
	numbers, outlines := map[groupKey]int{}, map[string]int32{}
	for n, node := range g.nodes {
		var nodeKey groupKey
		endpointShapes.states(dimensions, n, &nodeKey.states)
		if dependsOnAddresses {
			nodeKey.addressCode = addressCodeOf(service, node, n)
		}
		if service.Topology.MaxLoad > 0 && nodeKey.isShared(dimensions) {
			nodeKey.outline = numberOf(outlines, outlineOf(decisions, node))
		}
		number, known := numbers[nodeKey]
		if !known {
			number = len(groups)
			numbers[nodeKey] = number
			groups = append(groups, newGroup(dimensions, &nodeKey))
		}
		groups[number].Nodes = append(groups[number].Nodes, int32(n))
	}
	if isExact {
		g.cache[key] = groups
	}
	return groups
}

func newGroup(dimensions []dimension, key *groupKey) (g Group) {
	for i := range dimensions {
		switch d, state := &dimensions[i], key.states[i]; {
		case d.isExact():
		case state >= firstShape && d.name == onNode:
			g.OnNode = true
		case state >= firstShape:
			g.Shared = append(g.Shared, d.name)
		case state == unshared && !d.isUnique:
			g.Unshared = append(g.Unshared, d.name)
		}
	}
	return g
}

// addressCodeOf returns a code for what a node's addresses mean for the frontends of a Service: the families in which
// clients there may connect to the LoadBalancerIPs. A node that has one of the external IPs gets a code of its own.
func addressCodeOf(service *model.Service, node *model.Node, number int) (code int32) {
	for _, addr := range node.Addresses {
		if slices.Contains(service.ExternalIPs, addr) {
			return int32(-1 - number)
		}
		if slices.ContainsFunc(service.SourceRanges, func(prefix netip.Prefix) bool { return prefix.Contains(addr) }) {
			code |= 1 << model.FamilyOf(addr)
		}
	}
	return code
}

// outlineOf formats a node's share of the plans behind decisions, without the node's values of the keys.
func outlineOf(decisions []Decision, node *model.Node) string {
	var text []byte
	for i := range decisions {
		if cached := decisions[i].Viewpoint.plan; cached != nil && cached.plan != nil {
			outline := cached.plan.Outline(node.Name, node.Labels)
			for k := range outline.KeyResults {
				outline.KeyResults[k].Value = ""
			}
			text = fmt.Appendf(text, "%v\n", outline)
		}
	}
	return string(text)
}

// The states of a node in a dimension that is not exact.
const (
	noValue    = iota // the node has no value
	emptyValue        // the node's value is empty, and no endpoint has it
	unshared          // no endpoint has the node's value
	firstShape        // the first number of a shape: how many endpoints of each kind have the node's value
)

// shapes compares nodes by the endpoints of a Service that share their values.
type shapes struct {
	located        []locatedEndpoint
	prefixes       map[[3]int32]int32    // numbers of a node's values in the first dimensions
	statesByPrefix map[int32]int32       // states by prefix
	numbers        map[string]int32      // of shapes
	kinds          map[traits]int32      // numbers of kinds
	index          map[locationKey]int32 // into located
}

// locationKey is the address of an endpoint, and everything that determines which nodes it is near to.
type locationKey struct {
	addr                                 netip.Addr
	node, zone, hintedNodes, hintedZones string
}

// locatedEndpoint stands for the endpoints with one locationKey: one for each port.
type locatedEndpoint struct {
	endpoint *model.PortEndpoint
	kind     int32 // the number of its traits
}

// traits identify a kind: that of the earlier ports, and everything that matters of this port except its location.
type traits struct {
	previous, decision          int32
	port                        uint16
	ready, serving, terminating bool
	demotion                    string
}

func newShapes(dimensions []dimension, decisions []Decision) *shapes {
	s := &shapes{
		prefixes: map[[3]int32]int32{}, statesByPrefix: map[int32]int32{}, numbers: map[string]int32{}, kinds: map[traits]int32{},
		index: map[locationKey]int32{},
	}
	for i := range decisions {
		for j := range decisions[i].Endpoints {
			if endpoint := &decisions[i].Endpoints[j]; endpoint.Phase() != model.PhaseNever { // no node uses the others
				s.add(int32(i), endpoint)
			}
		}
	}
	for i := range dimensions {
		if d := &dimensions[i]; !d.isExact() {
			d.entries = map[string][]int32{}
			for n := range s.located {
				for _, value := range d.endpointValues(s.located[n].endpoint) {
					d.entries[value] = append(d.entries[value], int32(n))
				}
			}
		}
	}
	return s
}

func (s *shapes) add(decision int32, endpoint *model.PortEndpoint) {
	key := locationKey{
		endpoint.Addr.Addr(), endpoint.Node, endpoint.Zone, strings.Join(endpoint.HintNodes, ","), strings.Join(endpoint.HintZones, ","),
	}
	number, known := s.index[key]
	if !known {
		number = int32(len(s.located))
		s.index[key] = number
		s.located = append(s.located, locatedEndpoint{endpoint: endpoint})
	}
	t := traits{
		previous: s.located[number].kind, decision: decision, port: endpoint.Addr.Port(),
		ready: endpoint.Ready, serving: endpoint.Serving, terminating: endpoint.Terminating,
	}
	if demotion := endpoint.Demotion; demotion != nil {
		t.demotion = fmt.Sprint(demotion.Reason, demotion.EndText(), demotion.Since)
	}
	s.located[number].kind = numberOf(s.kinds, t)
}

// states writes the state of a node in each dimension.
func (s *shapes) states(dimensions []dimension, node int, states *[maxDimensions]int32) {
	prefix := int32(0)
	for i := range dimensions {
		d := &dimensions[i]
		number := d.byNode[node]
		if d.isExact() {
			states[i] = number
			continue
		}
		value := d.values[number]
		entries := d.entries[value]
		if len(entries) > 0 || i+1 < len(dimensions) {
			prefix = numberOf(s.prefixes, [3]int32{prefix, int32(i), number})
		}
		switch {
		case number == 0:
			states[i] = noValue
		case len(entries) == 0 && value == "":
			states[i] = emptyValue
		case len(entries) == 0:
			states[i] = unshared
		default:
			if s.statesByPrefix[prefix] == 0 {
				s.statesByPrefix[prefix] = firstShape + numberOf(s.numbers, s.shapeOf(dimensions[:i], entries, node))
			}
			states[i] = s.statesByPrefix[prefix]
		}
	}
}

// shapeOf encodes how many endpoints of each kind there are, and whether they share the node's values in earlier
// dimensions.
func (s *shapes) shapeOf(earlier []dimension, entries []int32, node int) string {
	codes := make([]uint64, len(entries))
	for n, entry := range entries {
		codes[n] = uint64(s.located[entry].kind) << maxDimensions
		for i := range earlier {
			if d := &earlier[i]; d.byNode[node] > 0 &&
				slices.Contains(d.endpointValues(s.located[entry].endpoint), d.values[d.byNode[node]]) {
				codes[n] |= 1 << i
			}
		}
	}
	slices.Sort(codes)
	text := make([]byte, 0, 8*len(codes))
	for _, code := range codes {
		text = binary.BigEndian.AppendUint64(text, code)
	}
	return string(text)
}

// numberOf returns the number of a key. A new key gets the next one, from 1.
func numberOf[K comparable](numbers map[K]int32, key K) int32 {
	if numbers[key] == 0 {
		numbers[key] = int32(len(numbers) + 1)
	}
	return numbers[key]
}
