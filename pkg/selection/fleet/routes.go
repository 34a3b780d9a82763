package fleet

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// routes say where nodes send their connections. Nodes that differ in nothing but the name have the same routes, unless
// the name is that of a host: one that an endpoint runs on, or is hinted for.
type routes interface {
	// of returns where a node's connections go, the parts of 1 in sum; none if it refuses.
	of(node *model.Node) []leg
}

// leg is a part of a node's connections.
type leg struct {
	key  int // the index of the key that matched; noKey if none did
	part float64
	to   *target
}

const noKey = -1

// target is endpoints that share what goes to them: alike, or by weights.
type target struct {
	members []int32
	weights []float64 // of the members; nil: alike
	sum     float64   // of the weights

	// What goes there: in all, and from which zones, regions and hosts.
	asked                                        float64
	fromZones, fromRegions, fromPairs, fromHosts amounts
}

// targets makes targets by a name.
type targets[K comparable] map[K]*target

func (t targets[K]) add(name K, endpoint int) {
	if t[name] == nil {
		t[name] = &target{}
	}
	t[name].members = append(t[name].members, int32(endpoint))
	t[name].sum++
}

// none refuses.
type none struct{}

func (none) of(*model.Node) []leg { return nil }

// everywhere sends to the same endpoints from all nodes.
type everywhere struct{ to *target }

func (e everywhere) of(*model.Node) []leg { return []leg{{noKey, 1, e.to}} }

// local keeps connections on the node, among the ready endpoints or else among those that terminate.
type local [model.PhaseNever]targets[string]

func newLocal(endpoints []model.PortEndpoint) local {
	l := local{{}, {}}
	for i := range endpoints {
		if phase := endpoints[i].Phase(); phase != model.PhaseNever && endpoints[i].Node != "" {
			l[phase].add(endpoints[i].Node, i)
		}
	}
	return l
}

func (l local) of(node *model.Node) []leg {
	for _, byNode := range l {
		if to := byNode[node.Name]; to != nil {
			return []leg{{noKey, 1, to}}
		}
	}
	return nil
}

// group is the endpoints of one rank with one value of one key.
type group struct {
	rank  model.Rank
	key   int
	value string
}

// byKeys sends to the endpoints of the first key that matches; with a plan, to those of several.
type byKeys struct {
	keys   []policy.Key
	groups targets[group]
	plan   *balance.Plan // nil without a bound
}

func newByKeys(keys []policy.Key, endpoints []model.PortEndpoint, valueOf balance.ValueOf) byKeys {
	r := byKeys{keys: keys, groups: targets[group]{}}
	for i := range endpoints {
		rank, usable := endpoints[i].Rank()
		if !usable {
			continue
		}
		for k, key := range keys {
			value, known := "", true
			if key != policy.AnyNode {
				value, known = valueOf(&endpoints[i], key)
			}
			if known {
				r.groups.add(group{rank, k, value}, i)
			}
		}
	}
	return r
}

func (r byKeys) of(node *model.Node) []leg {
	if r.plan != nil {
		return r.planned(node)
	}
	for rank := range model.Rank(model.Ranks) {
		for k, key := range r.keys {
			value, carried := balance.NodeValue(key, node.Name, node.Labels)
			if !carried {
				continue
			}
			if to := r.groups[group{rank, k, value}]; to != nil {
				return []leg{{k, 1, to}}
			}
		}
	}
	return nil
}

func (r byKeys) planned(node *model.Node) []leg {
	var legs []leg
	for _, planned := range r.plan.Legs(node.Name, node.Labels) {
		if planned.Part == 0 {
			continue
		}
		value, _ := balance.NodeValue(r.keys[planned.Key], node.Name, node.Labels)
		to := r.groups[group{planned.Rank(), planned.Key, value}]
		if to.weights == nil {
			to.sum = 0
			for _, i := range to.members {
				weight := float64(r.plan.Weight(planned, int(i)))
				to.weights = append(to.weights, weight)
				to.sum += weight
			}
		}
		legs = append(legs, leg{planned.Key, float64(planned.Part) / balance.ONE, to})
	}
	return legs
}

// byHints follows hints, each kind only if every ready endpoint has one.
type byHints struct {
	forNodes, forZones targets[string] // nil if a ready endpoint has no hint of the kind
	all                *target
}

func newByHints(endpoints []model.PortEndpoint) routes {
	isStaying := func(e model.PortEndpoint) bool { return e.Evacuation == nil && e.Phase() != model.PhaseNever }
	anyStays := slices.ContainsFunc(endpoints, isStaying)
	r, terminating := byHints{targets[string]{}, targets[string]{}, &target{}}, &target{}
	for i := range endpoints {
		endpoint := &endpoints[i]
		switch {
		case anyStays && endpoint.Evacuation != nil, endpoint.Phase() == model.PhaseNever:
			continue
		case endpoint.Phase() == model.PhaseTerminating:
			terminating.members = append(terminating.members, int32(i))
			continue
		}
		r.all.members = append(r.all.members, int32(i))
		r.forNodes = hinted(r.forNodes, endpoint.HintNodes, i)
		r.forZones = hinted(r.forZones, endpoint.HintZones, i)
	}
	r.all.sum, terminating.sum = float64(len(r.all.members)), float64(len(terminating.members))
	switch {
	case r.all.sum > 0:
		return r
	case terminating.sum > 0:
		return everywhere{terminating}
	}
	return none{}
}

// hinted adds an endpoint to those of its hints. One without any makes them all useless.
func hinted(to targets[string], hints []string, endpoint int) targets[string] {
	if to == nil || len(hints) == 0 {
		return nil
	}
	for _, hint := range hints {
		to.add(hint, endpoint)
	}
	return to
}

func (r byHints) of(node *model.Node) []leg {
	to := r.forNodes[node.Name]
	if to == nil {
		to = r.forZones[node.Labels[string(policy.Zone)]]
	}
	if to == nil {
		to = r.all
	}
	return []leg{{noKey, 1, to}}
}
