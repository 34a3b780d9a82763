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
	first     [][]int // the first key that node and endpoint share; -1 means none
	nested    bool
}

// problems splits a scenario into components, by the definitions.
func (w *world) problems() []problem {
	var all []problem
	waiting := w.names()
	for _, ready := range []bool{true, false} {
		var endpoints []int
		for i, e := range w.endpoints {
			if ready && e.Ready || !ready && !e.Ready && e.Serving && e.Terminating {
				endpoints = append(endpoints, i)
			}
		}
		var served, others []string
		for _, name := range waiting {
			if slices.ContainsFunc(endpoints, func(i int) bool { return w.firstKey(name, &w.endpoints[i]) >= 0 }) {
				served = append(served, name)
			} else {
				others = append(others, name)
			}
		}
		waiting = others
		all = append(all, w.components(served, endpoints)...)
	}
	return all
}

// sharesValue reports whether a node and an endpoint have the same value of a key.
func (w *world) shares(name string, e *model.PortEndpoint, key policy.Key) bool {
	if key == policy.AnyNode {
		return true
	}
	endpointValue, known := w.valueOf(e, key)
	nodeValue, carried := w.nodes[name][string(key)]
	if key == policy.Hostname {
		nodeValue, carried = name, true
	}
	return known && carried && nodeValue == endpointValue
}

func (w *world) firstKey(name string, e *model.PortEndpoint) int {
	return slices.IndexFunc(w.keys, func(key policy.Key) bool { return w.shares(name, e, key) })
}

// components finds linked nodes and endpoints by walking from endpoint to endpoint over shared values and nodes.
func (w *world) components(nodes []string, endpoints []int) []problem {
	linked := func(a, b int) bool {
		first, second := &w.endpoints[a], &w.endpoints[b]
		for _, key := range w.keys {
			one, known := w.valueOf(first, key)
			other, alsoKnown := w.valueOf(second, key)
			if key == policy.AnyNode || known && alsoKnown && one == other {
				return true
			}
		}
		return slices.ContainsFunc(nodes, func(name string) bool { return w.firstKey(name, first) >= 0 && w.firstKey(name, second) >= 0 })
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
			if slices.ContainsFunc(group, func(i int) bool { return w.firstKey(name, &w.endpoints[i]) >= 0 }) {
				p.nodes = append(p.nodes, name)
			}
		}
		w.complete(&p)
		if len(p.nodes) > 0 {
			all = append(all, p)
		}
	}
	return all
}

func (w *world) complete(p *problem) {
	for _, name := range p.nodes {
		demand, _ := policy.DemandOf(w.nodes[name])
		if w.clients != nil {
			demand = w.clients[name]
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
		var row []int
		for _, i := range p.endpoints {
			row = append(row, w.firstKey(name, &w.endpoints[i]))
		}
		p.first = append(p.first, row)
	}
	p.nested = w.isNested(p)
}

// isNested reports whether of any two groups with endpoints one contains the other, or they are disjoint. Nodes without
// demand count, because they link groups too.
func (w *world) isNested(p *problem) bool {
	var groups []map[int]bool // of endpoints, followed by nodes
	for _, key := range w.keys {
		byValue := map[string]map[int]bool{}
		add := func(value string, member int) {
			if byValue[value] == nil {
				byValue[value] = map[int]bool{}
			}
			byValue[value][member] = true
		}
		for at, i := range p.endpoints {
			if value, known := w.valueOf(&w.endpoints[i], key); known || key == policy.AnyNode {
				add(value, at)
			}
		}
		for at, name := range p.nodes {
			for j, i := range p.endpoints {
				value, _ := w.valueOf(&w.endpoints[i], key)
				if w.shares(name, &w.endpoints[p.endpoints[j]], key) {
					add(value, len(p.endpoints)+at)
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
func (p *problem) best(keys int, unit, capacity int64) []int64 {
	// Nodes with the same view of the endpoints are merged, and so are endpoints in the same view.
	type bundle struct {
		member int
		amount int64
	}
	var nodes, endpoints []bundle
	for i := range p.nodes {
		at := slices.IndexFunc(nodes, func(b bundle) bool { return slices.Equal(p.first[b.member], p.first[i]) })
		if at < 0 {
			at, nodes = len(nodes), append(nodes, bundle{member: i})
		}
		nodes[at].amount += p.demand[i] * unit
	}
	for j := range p.endpoints {
		at := slices.IndexFunc(endpoints, func(b bundle) bool {
			return !slices.ContainsFunc(p.first, func(row []int) bool { return row[b.member] != row[j] })
		})
		if at < 0 {
			at, endpoints = len(endpoints), append(endpoints, bundle{member: j})
		}
		endpoints[at].amount += capacity
	}
	var net network
	source, sink := len(nodes)+len(endpoints), len(nodes)+len(endpoints)+1
	net.edges = make([][]edge, sink+1)
	for i, node := range nodes {
		net.add(source, i, node.amount, 0)
		for j, endpoint := range endpoints {
			if key := p.first[node.member][endpoint.member]; key >= 0 {
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
				sums[p.first[node.member][endpoints[e.to-len(nodes)].member]] += net.edges[e.to][e.back].capacity
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

func (n *network) add(from, to int, room, cost int64) {
	n.edges[from] = append(n.edges[from], edge{to, len(n.edges[to]), room, cost})
	n.edges[to] = append(n.edges[to], edge{from, len(n.edges[from]) - 1, 0, -cost})
}

func (n *network) push(source, sink int) {
	const far = 1 << 60
	cost, from, by := make([]int64, len(n.edges)), make([]int, len(n.edges)), make([]int, len(n.edges))
	for {
		for i := range cost {
			cost[i] = far
		}
		cost[source] = 0
		queue, queued := []int{source}, make([]bool, len(n.edges))
		for len(queue) > 0 {
			at := queue[0]
			queue, queued[at] = queue[1:], false
			for i, e := range n.edges[at] {
				if e.capacity > 0 && cost[at]+e.cost < cost[e.to] {
					cost[e.to], from[e.to], by[e.to] = cost[at]+e.cost, at, i
					if !queued[e.to] {
						queue, queued[e.to] = append(queue, e.to), true
					}
				}
			}
		}
		if cost[sink] >= 0 {
			return // no path is left, or none that places more
		}
		room := int64(far)
		for at := sink; at != source; at = from[at] {
			room = min(room, n.edges[from[at]][by[at]].capacity)
		}
		for at := sink; at != source; at = from[at] {
			e := &n.edges[from[at]][by[at]]
			e.capacity -= room
			n.edges[at][e.back].capacity += room
		}
	}
}
