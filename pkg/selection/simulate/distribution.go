package simulate

import (
	"iter"
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Query is the input for one Service port in one family.
type Query struct {
	Topology policy.Topology
	// IsLocal is set if internalTrafficPolicy keeps connections to the ClusterIP on the node.
	IsLocal   bool
	Endpoints []model.PortEndpoint
	// Clients is the number of ready endpoints of the named client Services on each node. It is nil if none is named.
	Clients map[string]uint32
	// NodeDemand is the measured demand of nodes on this Service, by name. If it is empty, the simulator's demand applies.
	NodeDemand map[string]float64
	// Measured is the measured demand of this Service that proxies know, or nil. It is the nodes' demand unless NodeDemand
	// or the simulator overrides it, and a load bound is planned with it if Topology requests that.
	Measured *model.Demand
}

// Distribution is the distribution of all nodes' connections. Amounts are in the unit of the demand.
type Distribution struct {
	// Demand is the demand of all nodes, and Refused the part of it that is refused for lack of endpoints.
	Demand, Refused float64
	// Evacuated is the part that goes to endpoints on nodes that are being evacuated, because no others may be used.
	// OnlyEvacuated are the names of the nodes that send it.
	Evacuated     float64
	OnlyEvacuated []string
	// Node is the part that stays on the client's own node. Zone is Node plus the part that stays in the zone, and Region
	// is Zone plus the part that stays in the region. OtherZones is the part that goes to another node in another zone, if
	// both zones are known.
	Node, Zone, Region, OtherZones float64
	// Refusers are the nodes that refuse connections. The zero value means none.
	Refusers RefusingNodes
	// Source is the source of the demand. PlannedWith is the source of the demand that a load bound is planned with,
	// or the zero value without a load bound.
	Source, PlannedWith Source
	// IsServiceDemand is set if the demand is specific to this Service: measured, or the ready endpoints of the named
	// clients.
	IsServiceDemand bool
	// Keys is the part that goes to the endpoints that each of the topology keys matches and no earlier key does.
	Keys []float64
	// Loads are the endpoints' loads. Mean is the load if all were equal, counting the ready endpoints that stay (or else
	// the best ones) and any other that gets connections.
	Loads []float64
	Mean  float64
	// Zones is the part that goes from the zone of a row to the zone of a column, row by row: see Simulator.Zones.
	Zones []float64
}

// Source is the source of a demand. Its zero value means none.
type Source string

// The sources.
const (
	Labels   Source = "labels"   // of the nodes
	Clients  Source = "clients"  // that the Service names
	Measured Source = "measured" // Query.Measured
	Given    Source = "file"     // the simulator's demand, or Query.NodeDemand
)

// RefusingNodes are nodes that refuse their connections.
type RefusingNodes struct {
	// Count is their number, and WithDemand the number of all nodes with any demand.
	Count, WithDemand int
	// First are the names of the first ones, up to MaxNamed.
	First []string
	// Reason is the reason that package selection returns for the first one.
	Reason selection.Reason
}

// MaxNamed is the maximum number of refusing nodes that are named.
const MaxNamed = 4

// Distribute decides for all nodes, and returns the distribution of their connections to the ClusterIP of a Service
// port, or to the name of a headless Service.
func (sim *Simulator) Distribute(q Query) Distribution {
	keys := q.Topology.Keys
	if q.IsLocal {
		keys = nil
	}
	partition := sim.partitionOf(keys)
	classes, demand := slices.Clone(partition.classes), func(node int32) float64 { return sim.demand[node] }
	demands := sim.serviceDemandOf(&q)
	byNode, source := sim.demandByNode(&q, &demands)
	if byNode != nil {
		demand = func(node int32) float64 { return byNode[node] }
		for i := range classes {
			classes[i].nodesWithDemand, classes[i].demand = 0, 0
		}
		for _, node := range slices.Sorted(maps.Keys(byNode)) { // sums of fractions depend on their order
			classes[partition.classOf[node]].add(byNode[node])
		}
	}
	acc := accumulator{
		simulator: sim, decisions: sim.decisionsOf(q, partition, &demands), locations: sim.locationsOf(q.Endpoints),
		out: Distribution{
			Keys: make([]float64, len(keys)), Loads: make([]float64, len(q.Endpoints)), Source: source, IsServiceDemand: byNode != nil,
		},
	}
	acc.out.PlannedWith = acc.decisions.plannedWith
	routed := routedDemand{hosts: sim.hostsOf(q.Endpoints), byClass: make([]*target, len(classes)), classOf: partition.classOf}
	for _, host := range routed.hosts {
		class := &classes[partition.classOf[host]]
		class.subtract(demand(host))
		routed.byHost = append(routed.byHost, acc.send(&sim.nodes[host], host, class, demand(host)))
	}
	for i := range classes {
		if class := &classes[i]; class.nodesWithDemand > 0 { // else only rounding errors are left
			routed.byClass[i] = acc.send(&model.Node{Labels: sim.nodes[class.node].Labels}, noLocation, class, class.demand)
		}
	}
	acc.finish(q.Endpoints)
	if acc.out.Refused > 0 {
		acc.out.Refusers = sim.refusingNodes(q, routed, demand)
	}
	if acc.out.Evacuated > 0 {
		for i, t := range routed.byNode(demand) {
			if t != nil && t.isEvacuated(q.Endpoints) {
				acc.out.OnlyEvacuated = append(acc.out.OnlyEvacuated, sim.nodes[i].Name)
			}
		}
	}
	return acc.out
}

// routedDemand has the target of each host, and of the other nodes of each class. A nil target means that they refuse.
type routedDemand struct {
	hosts   []int32 // sorted
	byHost  []*target
	byClass []*target
	classOf []int32 // by node
}

// byNode yields the nodes with any demand, in their order.
func (r *routedDemand) byNode(demand func(int32) float64) iter.Seq2[int, *target] {
	return func(yield func(int, *target) bool) {
		hosts := 0
		for i, class := range r.classOf {
			t := r.byClass[class]
			if hosts < len(r.hosts) && int(r.hosts[hosts]) == i {
				t = r.byHost[hosts]
				hosts++
			}
			if demand(int32(i)) != 0 && !yield(i, t) {
				return
			}
		}
	}
}

func (sim *Simulator) refusingNodes(q Query, routed routedDemand, demand func(int32) float64) (r RefusingNodes) {
	for i, t := range routed.byNode(demand) {
		r.WithDemand++
		if t != nil {
			continue
		}
		if r.Count == 0 {
			r.Reason = sim.refusalReason(q, &sim.nodes[i])
		}
		if r.Count++; r.Count <= MaxNamed {
			r.First = append(r.First, sim.nodes[i].Name)
		}
	}
	return r
}

// unboundedService returns the Service without its load bound, which the simulator plans itself.
func (q *Query) unboundedService() model.Service {
	topology := q.Topology
	topology.MaxLoad = 0
	return model.Service{Topology: topology, InternalTrafficLocal: q.IsLocal}
}

// refusalReason returns the reason why a node that refuses has no endpoints. A load bound makes no difference to that.
func (sim *Simulator) refusalReason(q Query, node *model.Node) selection.Reason {
	service := q.unboundedService()
	choice, _ := selection.Select(&service, false, q.Endpoints, selection.NodeView{Node: *node, Labels: sim.Labels}).ClusterIP()
	return choice.Reason
}

// serviceDemand is the nodes' demand on one Service, in addition to the simulator's.
type serviceDemand struct {
	// given is Query.NodeDemand of the existing nodes. It is nil if none has any.
	given map[int32]float64
	// measured is Query.Measured, and isMeasured is set if some node has any.
	measured   balance.Demand
	isMeasured bool
}

func (sim *Simulator) serviceDemandOf(q *Query) serviceDemand {
	d := serviceDemand{given: knownDemand(sim, q.NodeDemand, func(demand float64) float64 { return demand })}
	if q.Measured != nil {
		d.measured, d.isMeasured = sim.partitionOf(selection.WithZone(q.Topology.Keys)).nodeClasses.Measured(q.Measured)
	}
	return d
}

// demandByNode returns the nodes' demand on this Service, as measured or by its clients. It returns nil if the
// simulator's demand applies to all nodes.
func (sim *Simulator) demandByNode(q *Query, d *serviceDemand) (map[int32]float64, Source) {
	if d.given != nil || sim.isGiven {
		return d.given, Given
	}
	if d.isMeasured {
		return sim.measuredByNode(d.measured, q.Measured), Measured
	}
	clients := knownDemand(sim, q.Clients, func(clients uint32) float64 { return float64(min(clients, balance.MaxDemand)) })
	if clients != nil {
		return clients, Clients
	}
	return nil, Labels
}

// measuredByNode returns each node's part of a measured demand, in the unit of the measurement, without nodes that have
// none. The parts of a zone's nodes add up to the zone's measured demand. Demand of zones without nodes is dropped.
func (sim *Simulator) measuredByNode(demand balance.Demand, measured *model.Demand) map[int32]float64 {
	byNode, inZone := map[int32]float64{}, make([]float64, len(sim.rows))
	for i := range sim.nodes {
		if demand := demand.OfNode(sim.nodes[i].Name); demand > 0 {
			byNode[int32(i)] = float64(demand)
			inZone[sim.zoneOf[i]] += float64(demand)
		}
	}
	for node := range byNode {
		byNode[node] *= float64(measured.Zones[sim.nodes[node].Labels[string(policy.Zone)]]) / inZone[sim.zoneOf[node]]
	}
	return byNode
}

// knownDemand returns the demand of the known nodes, or nil if none of them has any.
func knownDemand[T any](sim *Simulator, demand map[string]T, amount func(T) float64) (byNode map[int32]float64) {
	for name, value := range demand {
		if node, isKnown := sim.byName[name]; isKnown && amount(value) > 0 && policy.IsLinux(sim.nodes[node].Labels) {
			if byNode == nil {
				byNode = map[int32]float64{}
			}
			byNode[node] = amount(value)
		}
	}
	return byNode
}

// location is the location of an endpoint. Unknown fields are 0, an unknown node is noLocation.
type location struct{ node, zone, region, pair int32 }

const noLocation = -1

func (sim *Simulator) locationsOf(endpoints []model.PortEndpoint) []location {
	locations := make([]location, len(endpoints))
	for i := range endpoints {
		endpoint := &endpoints[i]
		zone, _ := sim.view.ValueOf(endpoint, policy.Zone)
		region, _ := sim.view.ValueOf(endpoint, Region)
		locations[i] = location{node: noLocation, zone: sim.zones.number(zone), region: sim.regions.number(region)}
		locations[i].pair = sim.pairs[[2]int32{locations[i].zone, locations[i].region}]
		if node, known := sim.byName[endpoint.Node]; known {
			locations[i].node = node
		}
	}
	return locations
}

// hostsOf returns the nodes that decisions distinguish by name: those that host endpoints, or that hints name.
func (sim *Simulator) hostsOf(endpoints []model.PortEndpoint) []int32 {
	var hosts []int32
	for i := range endpoints {
		if node, known := sim.byName[endpoints[i].Node]; known {
			hosts = append(hosts, node)
		}
		for _, hint := range endpoints[i].HintNodes {
			if node, known := sim.byName[hint]; known {
				hosts = append(hosts, node)
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// accumulator sums up the connections to each target.
type accumulator struct {
	simulator *Simulator
	decisions *decisions
	locations []location
	targets   []*target // those with connections, in order
	out       Distribution
}

// send sends the demand of a node, or of all nodes of a class that are not hosts. It returns one target, or nil if the
// demand is refused or zero.
func (a *accumulator) send(node *model.Node, host int32, class *nodeClass, demand float64) *target {
	if demand <= 0 {
		return nil
	}
	a.out.Demand += demand
	decided := a.decisions.decisionOf(node)
	for k := range a.out.Keys {
		a.out.Keys[k] += demand * decided.keys[k]
	}
	if len(decided.allocations) == 0 {
		a.out.Refused += demand
	}
	for _, allocation := range decided.allocations {
		t, amount := allocation.target, demand*allocation.fraction
		if t.received == 0 {
			a.targets = append(a.targets, t)
		}
		t.received += amount
		t.fromZones[class.zone] += amount
		t.fromRegions[class.region] += amount
		t.fromPairs[a.simulator.pairs[[2]int32{class.zone, class.region}]] += amount
		t.fromHosts[host] += amount
	}
	return decided.firstTarget()
}

// finish divides the connections to each target among its endpoints.
func (a *accumulator) finish(endpoints []model.PortEndpoint) {
	size := int(a.simulator.rows[0]) + 1
	a.out.Zones = make([]float64, size*size)
	for _, t := range a.targets {
		var zone, region, pair, unknown float64
		columns := make([]float64, size)
		if t.isEvacuated(endpoints) {
			a.out.Evacuated += t.received
		}
		for m, i := range t.members {
			fraction := t.weight(m)
			loc := a.locations[i]
			a.out.Loads[i] += t.received * fraction
			zone += t.fromZones.amountFrom(loc.zone) * fraction
			region += t.fromRegions.amountFrom(loc.region) * fraction
			pair += t.fromPairs.amountFrom(loc.pair) * fraction
			if loc.zone == 0 {
				unknown += fraction
			}
			columns[a.simulator.row(loc.zone)] += fraction
			if loc.node != noLocation {
				a.addLocal(loc, t.fromHosts[loc.node]*fraction)
			}
		}
		a.out.Zone += zone
		a.out.Region += zone + region - pair
		a.out.OtherZones += (t.received-t.fromZones[0])*(1-unknown) - zone
		for _, from := range slices.Sorted(maps.Keys(t.fromZones)) { // sums of fractions depend on their order
			row := a.simulator.row(from) * size
			for column, fraction := range columns {
				a.out.Zones[row+column] += t.fromZones[from] * fraction
			}
		}
	}
	best := model.Rank(model.NumRanks)
	for i := range endpoints {
		if rank, usable := endpoints[i].Rank(); usable {
			best = min(best, rank)
		}
	}
	for i := range endpoints {
		rank, usable := endpoints[i].Rank()
		if usable && rank == best || a.out.Loads[i] > 0 {
			a.out.Mean++ // the number of these endpoints; divided below
		}
	}
	if a.out.Mean > 0 {
		a.out.Mean = (a.out.Demand - a.out.Refused) / a.out.Mean
	}
}

// addLocal counts connections that stay on the node of an endpoint. They stay in the zone and region, too, even if
// these are unknown.
func (a *accumulator) addLocal(loc location, amount float64) {
	a.out.Node += amount
	zone, region := a.simulator.zoneOf[loc.node], a.simulator.regionOf[loc.node]
	if zone > 0 && zone == loc.zone {
		return // already counted with the zone and region
	}
	a.out.Zone += amount
	if zone > 0 && loc.zone > 0 { // the EndpointSlice and the Node name different zones
		a.out.OtherZones -= amount
	}
	if region == 0 || region != loc.region {
		a.out.Region += amount
	}
}

// amountsByLocation are amounts by the number of a location. The number 0 means that the location is unknown.
type amountsByLocation map[int32]float64

func (a amountsByLocation) amountFrom(location int32) float64 {
	if location == 0 {
		return 0
	}
	return a[location]
}
