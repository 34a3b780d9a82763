package balance_test

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// This file is the reference for all nodes together: it computes the optimum by minimum-cost flow, from the
// definitions. It uses nothing of the package except the demand of a label.

// problem is one component in one phase: each node's demand, and for each endpoint the first key by which it may serve
// the node.
type problem struct {
	nodes     []string
	endpoints []int // indices into the scenario's endpoints
	demand    []int64
	total     int64
	firstKeys [][]int // the first key that node and endpoint share; -1 means none
	nested    bool
}

// problems splits a scenario into components, by the definitions.
func (s *scenario) problems() []problem {
	var all []problem
	unserved := s.names()
	for _, ready := range []bool{true, false} {
		var endpoints []int
		for i, e := range s.endpoints {
			if ready && e.Ready || !ready && !e.Ready && e.Serving && e.Terminating {
				endpoints = append(endpoints, i)
			}
		}
		var served, others []string
		for _, name := range unserved {
			if slices.ContainsFunc(endpoints, func(i int) bool { return s.firstKey(name, &s.endpoints[i]) >= 0 }) {
				served = append(served, name)
			} else {
				others = append(others, name)
			}
		}
		unserved = others
		all = append(all, s.components(served, endpoints)...)
	}
	return all
}

// sharesValue reports whether a node and an endpoint have the same value of a key.
func (s *scenario) sharesValue(name string, e *model.PortEndpoint, key policy.Key) bool {
	if key == policy.AnyNode {
		return true
	}
	endpointValue, known := s.valueOf(e, key)
	nodeValue, hasValue := s.nodes[name][string(key)]
	if key == policy.Hostname {
		nodeValue, hasValue = name, true
	}
	return known && hasValue && nodeValue == endpointValue
}

func (s *scenario) firstKey(name string, e *model.PortEndpoint) int {
	return slices.IndexFunc(s.keys, func(key policy.Key) bool { return s.sharesValue(name, e, key) })
}

// components finds linked nodes and endpoints by walking from endpoint to endpoint over shared values and nodes.
func (s *scenario) components(nodes []string, endpoints []int) []problem {
	linked := func(a, b int) bool {
		first, second := &s.endpoints[a], &s.endpoints[b]
		for _, key := range s.keys {
			one, known := s.valueOf(first, key)
			other, alsoKnown := s.valueOf(second, key)
			if key == policy.AnyNode || known && alsoKnown && one == other {
				return true
			}
		}
		return slices.ContainsFunc(nodes, func(name string) bool { return s.firstKey(name, first) >= 0 && s.firstKey(name, second) >= 0 })
	}
	var all []problem
	for rest := slices.Clone(endpoints); len(rest) > 0; {
		group := rest[:1:1]
		rest = rest[1:]
		for i := 0; i < len(group); i++ {
			var others []int
			for _, other := range rest {
				if linked(group[i], other) {
					group = append(group, other)
				} else {
					others = append(others, other)
				}
			}
			rest = others
		}
		p := problem{endpoints: group}
		for _, name := range nodes {
			if slices.ContainsFunc(group, func(i int) bool { return s.firstKey(name, &s.endpoints[i]) >= 0 }) {
				p.nodes = append(p.nodes, name)
			}
		}
		s.fillProblem(&p)
		if len(p.nodes) > 0 {
			all = append(all, p)
		}
	}
	return all
}

func (s *scenario) fillProblem(p *problem) {
	for _, name := range p.nodes {
		demand, _ := policy.DemandOf(s.nodes[name])
		if s.clients != nil {
			demand = s.clients[name]
		}
		p.demand = append(p.demand, int64(demand))
		p.total += int64(demand)
	}
	if p.total == 0 {
		for i := range p.demand {
			p.demand[i] = 1
		}
		p.total = int64(len(p.nodes))
	}
	for _, name := range p.nodes {
		var keys []int
		for _, i := range p.endpoints {
			keys = append(keys, s.firstKey(name, &s.endpoints[i]))
		}
		p.firstKeys = append(p.firstKeys, keys)
	}
	p.nested = s.isNested(p)
}

// isNested reports whether of any two groups with endpoints one contains the other, or they are disjoint. Nodes without
// demand count, because they link groups too.
func (s *scenario) isNested(p *problem) bool {
	var groups []map[int]bool // of endpoints, followed by nodes
	for _, key := range s.keys {
		byValue := map[string]map[int]bool{}
		add := func(value string, member int) {
			if byValue[value] == nil {
				byValue[value] = map[int]bool{}
			}
			byValue[value][member] = true
		}
		for index, i := range p.endpoints {
			if value, known := s.valueOf(&s.endpoints[i], key); known || key == policy.AnyNode {
				add(value, index)
			}
		}
		for index, name := range p.nodes {
			for j, i := range p.endpoints {
				value, _ := s.valueOf(&s.endpoints[i], key)
				if s.sharesValue(name, &s.endpoints[p.endpoints[j]], key) {
					add(value, len(p.endpoints)+index)
				}
			}
		}
		for _, group := range byValue {
			groups = append(groups, group)
		}
	}
	for i, a := range groups {
		for _, b := range groups[:i] {
			both := 0
			for member := range a {
				if b[member] {
					both++
				}
			}
			if both > 0 && both < len(a) && both < len(b) {
				return false
			}
		}
	}
	return true
}

// maxPlaced returns the maximum that the first key, the first two keys and so on can place at the same time, if each
// endpoint accepts at most a capacity. Amounts are in arbitrary units; a demand of 1 is `unit` of them.
func (p *problem) maxPlaced(keys int, unit, capacity int64) []int64 {
	// Nodes with the same view of the endpoints are merged, and so are endpoints in the same view.
	type bundle struct {
		member int
		amount int64
	}
	var nodes, endpoints []bundle
	for i := range p.nodes {
		index := slices.IndexFunc(nodes, func(b bundle) bool { return slices.Equal(p.firstKeys[b.member], p.firstKeys[i]) })
		if index < 0 {
			index, nodes = len(nodes), append(nodes, bundle{member: i})
		}
		nodes[index].amount += p.demand[i] * unit
	}
	for j := range p.endpoints {
		index := slices.IndexFunc(endpoints, func(b bundle) bool {
			return !slices.ContainsFunc(p.firstKeys, func(row []int) bool { return row[b.member] != row[j] })
		})
		if index < 0 {
			index, endpoints = len(endpoints), append(endpoints, bundle{member: j})
		}
		endpoints[index].amount += capacity
	}
	var net network
	source, sink := len(nodes)+len(endpoints), len(nodes)+len(endpoints)+1
	net.edges = make([][]edge, sink+1)
	for i, node := range nodes {
		net.add(source, i, node.amount, 0)
		for j, endpoint := range endpoints {
			if key := p.firstKeys[node.member][endpoint.member]; key >= 0 {
				net.add(i, len(nodes)+j, node.amount, -1<<(12*(keys-1-key)))
			}
		}
	}
	for j, endpoint := range endpoints {
		net.add(len(nodes)+j, sink, endpoint.amount, 0)
	}
	net.push(source, sink)
	sums := make([]int64, keys)
	for i, node := range nodes {
		for _, e := range net.edges[i] {
			if e.to != source {
				sums[p.firstKeys[node.member][endpoints[e.to-len(nodes)].member]] += net.edges[e.to][e.back].capacity
			}
		}
	}
	for k := 1; k < keys; k++ {
		sums[k] += sums[k-1]
	}
	return sums
}

// network computes a minimum-cost flow by successive cheapest paths. A key's edge costs minus a power of 4096. A path
// has fewer than 4096 edges, so no number of later keys outweighs an earlier one.
type network struct {
	edges [][]edge
}

type edge struct {
	to, back       int
	capacity, cost int64
}

func (n *network) add(from, to int, capacity, cost int64) {
	n.edges[from] = append(n.edges[from], edge{to, len(n.edges[to]), capacity, cost})
	n.edges[to] = append(n.edges[to], edge{from, len(n.edges[from]) - 1, 0, -cost})
}

func (n *network) push(source, sink int) {
	const infinite = 1 << 60
	cost, from, edgeTo := make([]int64, len(n.edges)), make([]int, len(n.edges)), make([]int, len(n.edges))
	for {
		for i := range cost {
			cost[i] = infinite
		}
		cost[source] = 0
		queue, queued := []int{source}, make([]bool, len(n.edges))
		for len(queue) > 0 {
			current := queue[0]
			queue, queued[current] = queue[1:], false
			for i, e := range n.edges[current] {
				if e.capacity > 0 && cost[current]+e.cost < cost[e.to] {
					cost[e.to], from[e.to], edgeTo[e.to] = cost[current]+e.cost, current, i
					if !queued[e.to] {
						queue, queued[e.to] = append(queue, e.to), true
					}
				}
			}
		}
		if cost[sink] >= 0 {
			return // no path is left, or none that places more
		}
		amount := int64(infinite)
		for current := sink; current != source; current = from[current] {
			amount = min(amount, n.edges[from[current]][edgeTo[current]].capacity)
		}
		for current := sink; current != source; current = from[current] {
			e := &n.edges[from[current]][edgeTo[current]]
			e.capacity -= amount
			n.edges[current][e.back].capacity += amount
		}
	}
}
