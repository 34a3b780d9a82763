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
	// or the simulator overrides it, and a bound is planned with it if Topology requests that.
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
	// Source is the source of the demand. PlannedWith is the source of the demand that a bound is planned with, or the
	// zero value without a bound.
	Source, PlannedWith Source
	// OfService is set if the demand is that on this Service: measured, or the ready endpoints of the named clients.
	OfService bool
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
	// Count is their number, and Total the number of nodes with any demand.
	Count, Of int
	// First are the names of the first ones, up to MaxNamed.
	First []string
	// Reason is the reason that package selection returns for the first one.
	Reason selection.Reason
}

// MostNamed is the maximum number of refusing nodes that are named.
const MostNamed = 4

// Distribute decides for all nodes, and returns the distribution of their connections to the ClusterIP of a Service
// port, or to the name of a headless Service.
func (f *Simulator) Distribute(q Query) Distribution {
	keys := q.Topology.Keys
	if q.IsLocal {
		keys = nil
	}
	partition := f.partitionOf(keys)
	crowds, demand := slices.Clone(partition.crowds), func(node int32) float64 { return f.demand[node] }
	demands := f.demandsOn(&q)
	named, source := f.named(&q, &demands)
	if named != nil {
		demand = func(node int32) float64 { return named[node] }
		for i := range crowds {
			crowds[i].demandingNodes, crowds[i].demand = 0, 0
		}
		for _, node := range slices.Sorted(maps.Keys(named)) { // sums of fractions depend on their order
			crowds[partition.of[node]].add(named[node])
		}
	}
	s := accumulator{
		fleet: f, decisions: f.decisionsOf(q, partition, &demands), endpointClasses: f.endpointClassesOf(q.Endpoints),
		out: Distribution{
			Keys: make([]float64, len(keys)), Loads: make([]float64, len(q.Endpoints)), Source: source, OfService: named != nil,
		},
	}
	s.out.PlannedWith = s.decisions.plannedWith
	sent := routedDemand{hosts: f.hostsOf(q.Endpoints), crowds: make([]*target, len(crowds)), classOf: partition.of}
	for _, host := range sent.hosts {
		class := &crowds[partition.of[host]]
		class.subtract(demand(host))
		sent.byHost = append(sent.byHost, s.send(&f.nodes[host], host, class, demand(host)))
	}
	for i := range crowds {
		if class := &crowds[i]; class.demandingNodes > 0 { // else only rounding errors are left
			sent.crowds[i] = s.send(&model.Node{Labels: f.nodes[class.node].Labels}, noLocation, class, class.demand)
		}
	}
	s.finish(q.Endpoints)
	if s.out.Refused > 0 {
		s.out.Refusers = f.refusingNodes(q, sent, demand)
	}
	if s.out.Evacuated > 0 {
		for i, to := range sent.byNode(demand) {
			if to != nil && to.isEvacuated(q.Endpoints) {
				s.out.OnlyEvacuated = append(s.out.OnlyEvacuated, f.nodes[i].Name)
			}
		}
	}
	return s.out
}

// routedDemand has the target of each host, and of the other nodes of each class. A nil target means that they refuse.
type routedDemand struct {
	hosts   []int32 // sorted
	byHost  []*target
	crowds  []*target
	classOf []int32 // by node
}

// byNode yields the nodes with any demand, in their order.
func (s *routedDemand) byNode(demand func(int32) float64) iter.Seq2[int, *target] {
	return func(yield func(int, *target) bool) {
		hosts := 0
		for i, crowd := range s.classOf {
			to := s.crowds[crowd]
			if hosts < len(s.hosts) && int(s.hosts[hosts]) == i {
				to = s.byHost[hosts]
				hosts++
			}
			if demand(int32(i)) != 0 && !yield(i, to) {
				return
			}
		}
	}
}

func (f *Simulator) refusingNodes(q Query, sent routedDemand, demand func(int32) float64) (r RefusingNodes) {
	for i, to := range sent.byNode(demand) {
		r.Of++
		if to != nil {
			continue
		}
		if r.Count == 0 {
			r.Reason = f.why(q, &f.nodes[i])
		}
		if r.Count++; r.Count <= MostNamed {
			r.First = append(r.First, f.nodes[i].Name)
		}
	}
	return r
}

// why returns the reason why a node that refuses has no endpoints. A bound makes no difference to that.
func (f *Simulator) why(q Query, node *model.Node) selection.Reason {
	service := model.Service{Topology: policy.Topology{Keys: q.Topology.Keys}, InternalTrafficLocal: q.IsLocal}
	choice, _ := selection.Select(&service, false, q.Endpoints, selection.NodeView{Node: *node, Labels: f.Labels}).ClusterIP()
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

func (f *Simulator) demandsOn(q *Query) serviceDemand {
	d := serviceDemand{given: knownDemand(f, q.NodeDemand, func(asked float64) float64 { return asked })}
	if q.Measured != nil {
		d.measured, d.isMeasured = f.partitionOf(selection.WithZone(q.Topology.Keys)).cells.Measured(q.Measured.Zones)
	}
	return d
}

// named returns the nodes' demand on this Service, as measured or by its clients. It returns nil if the simulator's
// demand applies to all nodes.
func (f *Simulator) named(q *Query, d *serviceDemand) (map[int32]float64, Source) {
	if d.given != nil || f.isGiven {
		return d.given, Given
	}
	if d.isMeasured {
		return f.by(d.measured, q.Measured), Measured
	}
	if clients := knownDemand(f, q.Clients, func(clients uint32) float64 { return float64(min(clients, balance.MaxDemand)) }); clients != nil {
		return clients, Clients
	}
	return nil, Labels
}

// by returns each node's part of a demand, in the unit in which it was measured, without nodes that have none. The
// parts of a zone's nodes add up to exactly the zone's measured demand. Demand of zones without nodes is dropped.
func (f *Simulator) by(demand balance.Demand, measured *model.Demand) map[int32]float64 {
	byNode, inZone := map[int32]float64{}, make([]float64, len(f.rows))
	for i := range f.nodes {
		if demand := demand.Of(f.nodes[i].Name); demand > 0 {
			byNode[int32(i)] = float64(demand)
			inZone[f.zoneOf[i]] += float64(demand)
		}
	}
	for node := range byNode {
		byNode[node] *= float64(measured.Zones[f.nodes[node].Labels[string(policy.Zone)]]) / inZone[f.zoneOf[node]]
	}
	return byNode
}

// knownDemand returns the demand of the known nodes, or nil if none of them has any.
func knownDemand[T any](f *Simulator, demand map[string]T, asks func(T) float64) (byNode map[int32]float64) {
	for name, of := range demand {
		if node, isKnown := f.byName[name]; isKnown && asks(of) > 0 && policy.IsLinux(f.nodes[node].Labels) {
			if byNode == nil {
				byNode = map[int32]float64{}
			}
			byNode[node] = asks(of)
		}
	}
	return byNode
}

// location is the location of an endpoint. Unknown fields are 0, an unknown node is noLocation.
type location struct{ node, zone, region, pair int32 }

const noLocation = -1

func (f *Simulator) endpointClassesOf(endpoints []model.PortEndpoint) []location {
	endpointClasses := make([]location, len(endpoints))
	for i := range endpoints {
		endpoint := &endpoints[i]
		zone, _ := f.view.ValueOf(endpoint, policy.Zone)
		region, _ := f.view.ValueOf(endpoint, Region)
		endpointClasses[i] = location{node: noLocation, zone: f.zones.number(zone), region: f.regions.number(region)}
		endpointClasses[i].pair = f.pairs[[2]int32{endpointClasses[i].zone, endpointClasses[i].region}]
		if node, known := f.byName[endpoint.Node]; known {
			endpointClasses[i].node = node
		}
	}
	return endpointClasses
}

// hostsOf returns the nodes that matter by name: those that host endpoints, or that hints name.
func (f *Simulator) hostsOf(endpoints []model.PortEndpoint) []int32 {
	var hosts []int32
	for i := range endpoints {
		if node, known := f.byName[endpoints[i].Node]; known {
			hosts = append(hosts, node)
		}
		for _, hint := range endpoints[i].HintNodes {
			if node, known := f.byName[hint]; known {
				hosts = append(hosts, node)
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// accumulator sums up the connections to each target.
type accumulator struct {
	fleet           *Simulator
	decisions       *decisions
	endpointClasses []location
	targets         []*target // those with connections, in order
	out             Distribution
}

// send sends the demand of a node, or of all nodes of a class that are not hosts. It returns one target, or nil if the
// demand is refused or zero.
func (s *accumulator) send(node *model.Node, host int32, of *nodeClass, demand float64) *target {
	if demand <= 0 {
		return nil
	}
	s.out.Demand += demand
	decided := s.decisions.of(node)
	for k := range s.out.Keys {
		s.out.Keys[k] += demand * decided.keys[k]
	}
	if len(decided.allocations) == 0 {
		s.out.Refused += demand
	}
	for _, allocation := range decided.allocations {
		to, amount := allocation.to, demand*allocation.part
		if to.received == 0 {
			s.targets = append(s.targets, to)
		}
		to.received += amount
		to.fromZones[of.zone] += amount
		to.fromRegions[of.region] += amount
		to.fromPairs[s.fleet.pairs[[2]int32{of.zone, of.region}]] += amount
		to.fromHosts[host] += amount
	}
	return decided.first()
}

// finish divides the connections to each target among its endpoints.
func (s *accumulator) finish(endpoints []model.PortEndpoint) {
	size := int(s.fleet.rows[0]) + 1
	s.out.Zones = make([]float64, size*size)
	for _, to := range s.targets {
		var zone, region, pair, unknown float64
		columns := make([]float64, size)
		if to.isEvacuated(endpoints) {
			s.out.Evacuated += to.received
		}
		for m, i := range to.members {
			part := to.weight(m)
			at := s.endpointClasses[i]
			s.out.Loads[i] += to.received * part
			zone += to.fromZones.from(at.zone) * part
			region += to.fromRegions.from(at.region) * part
			pair += to.fromPairs.from(at.pair) * part
			if at.zone == 0 {
				unknown += part
			}
			columns[s.fleet.row(at.zone)] += part
			if at.node != noLocation {
				s.stay(at, to.fromHosts[at.node]*part)
			}
		}
		s.out.Zone += zone
		s.out.Region += zone + region - pair
		s.out.OtherZones += (to.received-to.fromZones[0])*(1-unknown) - zone
		for _, from := range slices.Sorted(maps.Keys(to.fromZones)) { // sums of fractions depend on their order
			row := s.fleet.row(from) * size
			for column, part := range columns {
				s.out.Zones[row+column] += to.fromZones[from] * part
			}
		}
	}
	best := model.Rank(model.Ranks)
	for i := range endpoints {
		if rank, usable := endpoints[i].Rank(); usable {
			best = min(best, rank)
		}
	}
	for i := range endpoints {
		rank, usable := endpoints[i].Rank()
		if usable && rank == best || s.out.Loads[i] > 0 {
			s.out.Mean++ // their number, so far
		}
	}
	if s.out.Mean > 0 {
		s.out.Mean = (s.out.Demand - s.out.Refused) / s.out.Mean
	}
}

// stay counts the connections that stay on the node of an endpoint. They are near, even if zones and regions are
// unknown.
func (s *accumulator) stay(at location, amount float64) {
	s.out.Node += amount
	zone, region := s.fleet.zoneOf[at.node], s.fleet.regionOf[at.node]
	if zone > 0 && zone == at.zone {
		return // and is counted with the zone
	}
	s.out.Zone += amount
	if zone > 0 && at.zone > 0 { // the EndpointSlice and the Node name different zones
		s.out.OtherZones -= amount
	}
	if region == 0 || region != at.region {
		s.out.Region += amount
	}
}

// weights are numbers by location. The key 0 means no location.
type weights map[int32]float64

func (a weights) from(place int32) float64 {
	if place == 0 {
		return 0
	}
	return a[place]
}
