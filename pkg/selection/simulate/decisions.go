package simulate

import (
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// decisions are the decisions of all nodes for one Query. Nodes decide alike if they have the same values of all keys,
// counting only values that some endpoint has. So package selection decides once for each of these kinds of nodes. If
// hostnames matter, each node that hosts an endpoint is a kind of its own.
//
// A node does not distinguish endpoints that differ only in their hosts, if these are other nodes. One endpoint of a
// class stands for all, so the cost of a decision depends on the node's own endpoints and the number of classes, but
// not on the number of endpoints. With a plan, the endpoints of each group are weighed once.
type decisions struct {
	query   Query
	service model.Service
	labels  func(node string) (map[string]string, bool)
	plan    *balance.Plan // nil without a bound
	// plannedWith is the source of the plan's demand.
	plannedWith Source

	keys          []policy.Key
	values        []interner         // the endpoints' values of each key
	classes       [][]int32          // endpoints by class, in their order
	hostEndpoints map[string][]int32 // endpoints by host, which distinguishes them from others of their class; in order
	cached        map[[policy.MaxKeys]int32]*decision
	// targets are groups of endpoints, by the tier that chose them and its value.
	targets map[[2]string]*target
	groups  map[balance.Group]*target // by group of the plan
}

// decision is the decision of one kind of nodes.
type decision struct {
	allocations []allocation // none if it refuses connections
	keys        []float64    // the fraction that goes to each of the topology keys
}

// allocation is a fraction of connections with its target.
type allocation struct {
	target   *target
	fraction float64
}

// firstTarget returns one of the targets, which all have the same rank, or nil if there is none.
func (d *decision) firstTarget() *target {
	if len(d.allocations) == 0 {
		return nil
	}
	return d.allocations[0].target
}

// target is a group of endpoints that share connections.
type target struct {
	members []int32
	weights []float64 // fractions of the members; nil means equal

	// Connections to the target: in total, and from each zone, region, pair of these, and host.
	received                                     float64
	fromZones, fromRegions, fromPairs, fromHosts amountsByLocation
}

func newTarget(members []int32) *target {
	return &target{members: members, fromZones: amountsByLocation{}, fromRegions: amountsByLocation{}, fromPairs: amountsByLocation{},
		fromHosts: amountsByLocation{}}
}

// weight returns the fraction of a member.
func (t *target) weight(member int) float64 {
	if t.weights == nil {
		return 1 / float64(len(t.members))
	}
	return t.weights[member]
}

// isEvacuated reports whether the members are on nodes that are being evacuated. They have one rank or are on one node,
// so checking the first is enough.
func (t *target) isEvacuated(endpoints []model.PortEndpoint) bool {
	return endpoints[t.members[0]].Demotion.HasReason(model.Evacuated)
}

func (sim *Simulator) decisionsOf(q Query, partition *partition, demands *serviceDemand) *decisions {
	d := &decisions{
		query: q, service: q.unboundedService(),
		labels: sim.Labels, keys: q.Topology.Keys, hostEndpoints: map[string][]int32{},
		cached: map[[policy.MaxKeys]int32]*decision{}, targets: map[[2]string]*target{},
		groups: map[balance.Group]*target{},
	}
	switch {
	case q.IsLocal:
		d.keys = []policy.Key{policy.Hostname}
	case len(d.keys) == 0: // hints
		d.keys = []policy.Key{policy.Hostname, policy.Zone}
	case q.Topology.MaxLoad > 0:
		var demand balance.Demand
		demand, d.plannedWith = sim.plannedWith(&q, partition, demands)
		d.plan = balance.NewPlan(demand, balance.NewEndpointClasses(d.keys, q.Endpoints, sim.view.ValueOf), int(q.Topology.MaxLoad))
	}
	d.values = make([]interner, len(d.keys))
	d.buildClasses(sim.view)
	return d
}

// plannedWith returns the demand that a bound is planned with, and its source.
func (sim *Simulator) plannedWith(q *Query, partition *partition, demands *serviceDemand) (balance.Demand, Source) {
	if demands.isMeasured && q.Topology.Measured {
		return demands.measured, Measured
	}
	if len(q.Topology.Clients) > 0 {
		return partition.nodeClasses.Named(q.Clients), Clients
	}
	return partition.nodeClasses.ByLabels(), Labels
}

// usesHints reports whether hints apply.
func (d *decisions) usesHints() bool { return !d.query.IsLocal && len(d.query.Topology.Keys) == 0 }

// class has all properties of an endpoint that matter to nodes, except its host.
type class struct {
	values         [policy.MaxKeys]int32
	phase          model.Phase
	level          model.Rank // of its node's demotion
	zones          string     // of its hints
	hasHintedNodes bool
}

// buildClasses numbers the values of all endpoints, and builds their classes.
func (d *decisions) buildClasses(view selection.NodeView) {
	numbers := map[class]int{}
	for i := range d.query.Endpoints {
		endpoint := &d.query.Endpoints[i]
		c := class{phase: endpoint.Phase(), level: endpoint.Demotion.Level()}
		if d.usesHints() {
			for _, node := range endpoint.HintNodes {
				d.values[0].numberOf(node)
				d.hostEndpoints[node] = append(d.hostEndpoints[node], int32(i))
			}
			for _, zone := range endpoint.HintZones {
				d.values[1].numberOf(zone)
			}
			c.zones, c.hasHintedNodes = strings.Join(endpoint.HintZones, ","), len(endpoint.HintNodes) > 0
		} else {
			c.values = d.valuesOf(endpoint, int32(i), view)
		}
		number, known := numbers[c]
		if !known {
			number = len(d.classes)
			numbers[c] = number
			d.classes = append(d.classes, nil)
		}
		d.classes[number] = append(d.classes[number], int32(i))
	}
}

// valuesOf numbers an endpoint's values of the keys, and returns the numbers of all but the hostname.
func (d *decisions) valuesOf(endpoint *model.PortEndpoint, index int32, view selection.NodeView) (values [policy.MaxKeys]int32) {
	for k, key := range d.keys {
		if key == policy.AnyNode {
			continue
		}
		value, known := view.ValueOf(endpoint, key)
		switch {
		case !known:
		case key == policy.Hostname:
			d.values[k].numberOf(value)
			d.hostEndpoints[value] = append(d.hostEndpoints[value], index)
		default:
			values[k] = d.values[k].numberOf(value)
		}
	}
	return values
}

// decisionOf returns the decision of a node.
func (d *decisions) decisionOf(node *model.Node) *decision {
	var kind [policy.MaxKeys]int32
	for k, key := range d.keys {
		value, hasValue := balance.NodeValue(key, node.Name, node.Labels)
		if hasValue || d.usesHints() { // a hint may name the zone "": nodes without the label
			kind[k] = d.values[k].numbers[value]
		}
	}
	cached := d.cached[kind]
	if cached == nil {
		cached = d.decide(node)
		d.cached[kind] = cached
	}
	return cached
}

func (d *decisions) decide(node *model.Node) *decision {
	if d.plan != nil {
		return d.decideByPlan(node)
	}
	view, members := d.viewOf(node.Name)
	viewpoint := selection.NodeView{Node: *node, Labels: d.labels}
	choice, _ := selection.Select(&d.service, false, view, viewpoint).ClusterIP()
	decided := &decision{keys: make([]float64, len(d.service.Topology.Keys))}
	if len(choice.Endpoints) == 0 {
		return decided
	}
	if k := slices.Index(d.service.Topology.Keys, policy.Key(choice.Tier)); k >= 0 {
		decided.keys[k] = 1
	}
	targetKey := [2]string{choice.Tier, choice.Reason.Value}
	switch choice.Tier {
	case selection.TierAll:
		targetKey[1] = ""
	case selection.TierNode:
		targetKey[1] = node.Name
	}
	t := d.targets[targetKey]
	if t == nil {
		t = newTarget(members(choice.Endpoints))
		d.targets[targetKey] = t
	}
	decided.allocations = []allocation{{t, 1}}
	return decided
}

// viewOf returns the endpoints that a node distinguishes: its own, and one of each class of others. members returns all
// endpoints that the chosen ones stand for, in the same order.
func (d *decisions) viewOf(node string) (view []model.PortEndpoint, members func(chosen []model.PortEndpoint) []int32) {
	localEndpoints := d.hostEndpoints[node]
	isOther := func(i int32) bool {
		_, isLocal := slices.BinarySearch(localEndpoints, i)
		return !isLocal
	}
	view = make([]model.PortEndpoint, 0, len(localEndpoints)+len(d.classes))
	for _, i := range localEndpoints {
		view = append(view, d.query.Endpoints[i])
	}
	classes := make([]int, 0, len(d.classes))
	for number, class := range d.classes {
		if index := slices.IndexFunc(class, isOther); index >= 0 {
			view = append(view, d.query.Endpoints[class[index]])
			classes = append(classes, number)
		}
	}
	return view, func(chosen []model.PortEndpoint) (all []int32) {
		for i := range view {
			switch {
			case len(chosen) == 0 || chosen[0].Addr != view[i].Addr:
				continue
			case i < len(localEndpoints):
				all = append(all, localEndpoints[i])
			default:
				for _, member := range d.classes[classes[i-len(localEndpoints)]] {
					if isOther(member) {
						all = append(all, member)
					}
				}
			}
			chosen = chosen[1:]
		}
		return all
	}
}

// decideByPlan returns a node's decision by the plan.
func (d *decisions) decideByPlan(node *model.Node) *decision {
	decided := &decision{keys: make([]float64, len(d.keys))}
	for _, a := range d.plan.Allocations(node.Name, node.Labels) {
		if a.Fraction == 0 {
			continue
		}
		fraction := float64(a.Fraction) / balance.One
		decided.keys[a.Key] = fraction
		decided.allocations = append(decided.allocations, allocation{d.targetOf(a.Group, node.Name), fraction})
	}
	return decided
}

// targetOf returns the target for a group of the plan. The node that sends to the group matters only if the group's key
// is the hostname.
func (d *decisions) targetOf(group balance.Group, node string) *target {
	t := d.groups[group]
	if t != nil {
		return t
	}
	t = newTarget(nil)
	d.groups[group] = t
	sum := 0.0
	weigh := func(i int) {
		if weight := float64(d.plan.Weight(group, i)); weight > 0 {
			t.members, t.weights = append(t.members, int32(i)), append(t.weights, weight)
			sum += weight
		}
	}
	if d.keys[group.Key] == policy.Hostname {
		for _, i := range d.hostEndpoints[node] {
			weigh(int(i))
		}
	} else {
		for i := range d.query.Endpoints {
			weigh(i)
		}
	}
	for i := range t.weights {
		t.weights[i] /= sum
	}
	return t
}
