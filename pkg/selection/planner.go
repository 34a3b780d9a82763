package selection

import (
	"slices"
	"strings"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Planner makes decisions for the cluster's own node, and plans for load-bounded Services: for each list of topology
// keys that these use, it keeps an index of the nodes by their values of the keys. Building an index takes time
// proportional to the number of nodes; updating it for a node that changes takes little.
type Planner struct {
	cluster *model.Cluster

	// applied are the applied plans for the ports of load-bounded Services.
	applied map[model.ObjectName]Plans

	mutex  sync.Mutex // guards the fields below, except the node classes, which do not change while decisions are made
	byKeys map[string]*keyIndex
	// cachedEntries is the approximate number of entries in all indexes, see maxCachedEntries. createdEntries counts the
	// entries that were created since the start.
	cachedEntries, createdEntries int
	// clientCounts has the number of ready endpoints of each named client Service on each node, at clientCountsVersion.
	clientCounts        map[model.ObjectName]map[string]uint32
	clientCountsVersion uint64

	// cache has what the decisions of other nodes have in common. It is nil before SetView.
	cache *viewCache
}

// maxCachedEntries bounds the entries of all indexes together, some 40 MiB. Each node in an index is an entry. Users
// may write any number of lists of keys, and each needs an index of all nodes. Beyond the bound all indexes are
// dropped, and are rebuilt when they are needed: plans are the same, and take up to a millisecond longer.
const maxCachedEntries = 1 << 19

// keyIndex has the nodes by one list of keys.
type keyIndex struct {
	nodeClasses *balance.NodeClasses
	// byClients is the demand of clients, by their names: many Services may have the same clients.
	byClients map[string]balance.Demand
	// isUsed is set if a decision has used the index since the last Prune.
	isUsed bool
}

// NewPlanner returns a planner for a cluster.
func NewPlanner(cluster *model.Cluster) *Planner {
	return &Planner{cluster: cluster, byKeys: map[string]*keyIndex{}, applied: map[model.ObjectName]Plans{}}
}

// ApplyChange updates the nodes whose state in the cluster has changed.
func (p *Planner) ApplyChange(change model.Change) {
	for name := range change.Nodes {
		labels, known := p.cluster.NodeLabels(name)
		for _, index := range p.byKeys {
			if known {
				index.nodeClasses.Set(name, labels)
			} else {
				index.nodeClasses.Remove(name)
			}
		}
	}
	version := p.cluster.ClientsVersion()
	if version != p.clientCountsVersion {
		p.clientCounts, p.clientCountsVersion = nil, version
	} else if len(change.Nodes) == 0 {
		return
	}
	for _, index := range p.byKeys {
		index.byClients = nil // the demand is outdated
	}
	p.countEntries()
}

// Prune drops the indexes that no decision has used since the last call.
func (p *Planner) Prune() {
	for keys, index := range p.byKeys {
		if !index.isUsed {
			delete(p.byKeys, keys)
		}
		index.isUsed = false
	}
	p.countEntries()
}

// countEntries updates cachedEntries.
func (p *Planner) countEntries() {
	p.cachedEntries = 0
	for _, index := range p.byKeys {
		p.cachedEntries += entryCount(index.nodeClasses.Len())
		for _, demand := range index.byClients {
			p.cachedEntries += entryCount(demand.Len())
		}
	}
}

// entryCount returns the number of entries that an index with a number of nodes counts as.
func entryCount(nodes int) int { return 16 + nodes }

// evictIfFull makes room for a new index with a number of nodes. The caller holds the mutex.
func (p *Planner) evictIfFull(nodes int) {
	p.createdEntries += nodes
	if p.cachedEntries += entryCount(nodes); p.cachedEntries > maxCachedEntries {
		p.byKeys, p.cachedEntries = map[string]*keyIndex{}, entryCount(nodes)
	}
}

// NeedsReplan reports whether a decision about a load-bounded Service may differ from the applied one, if only other
// nodes or clients were added or removed. It also returns the approximate cost of this check, in the unit of Weight.
// The check takes a few microseconds, much less than a decision.
func (p *Planner) NeedsReplan(name model.ObjectName) (mayDiffer bool, weight int) {
	service, plans := p.cluster.Service(name), p.applied[name]
	if service == nil || len(plans) == 0 {
		return true, 1
	}
	createdBefore := p.createdEntries
	demand, known := p.demandOf(service)
	if !known {
		return true, 1
	}
	self := p.cluster.Self()
	mayDiffer = slices.ContainsFunc(plans, func(record *planRecord) bool {
		if !slices.Equal(record.endpointClasses.Keys(), service.Topology.Keys) {
			return true // it changed and is queued, or the kernel rejects it: the applied plan has other keys
		}
		if record.source != demand.Source() {
			return true // handlers need the source of the plan's demand, even if no connection moves
		}
		if record.nearProof.StillHolds(demand, service.Topology.MaxLoad) {
			return false
		}
		share := record.plan(service, demand, self)
		return !slices.Equal(share.Slots(name, record.hashes), record.slots)
	})
	return mayDiffer, 2 + (demand.NumClasses()*len(service.Topology.Keys)+demand.Len())/16 + (p.createdEntries-createdBefore)/16
}

// PlanWeight returns the approximate cost of planning for a load-bounded Service, in the unit of Weight. It is 0 for
// any other Service.
func (p *Planner) PlanWeight(name model.ObjectName) int {
	service := p.cluster.Service(name)
	if service == nil || service.Topology.MaxLoad == 0 {
		return 0
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	numNodes, keys := p.cluster.NodeCount(), service.Topology.Keys
	measured := p.cluster.MeasuredDemand(service)
	if measured != nil {
		keys = WithZone(keys)
	}
	index := p.byKeys[nameOf(keys)]
	if index == nil {
		return 2 * numNodes / 16
	}
	weight := index.nodeClasses.ByLabels().NumClasses() * len(keys) / 16
	if clients := service.Topology.Clients; measured == nil && len(clients) > 0 && index.byClients[nameOfClients(clients)].Len() == 0 {
		weight += numNodes / 16
	}
	return weight
}

func (p *Planner) viewpoint() NodeView {
	return NodeView{Node: p.cluster.Self(), Labels: p.cluster.NodeLabels, Demand: p.demandOf}
}

// demandOf returns each node's demand on a Service: the measured demand if the Service requests it and it is known,
// else the assumed demand. It returns false while some nodes are unknown.
func (p *Planner) demandOf(service *model.Service) (balance.Demand, bool) {
	if p.cache == nil {
		return p.computeDemand(service)
	}
	cached, known := p.cache.demands[service.Name]
	if !known {
		cached.demand, cached.isKnown = p.computeDemand(service)
		p.cache.demands[service.Name] = cached
	}
	return cached.demand, cached.isKnown
}

func (p *Planner) computeDemand(service *model.Service) (balance.Demand, bool) {
	if !p.cluster.HasAllNodes() {
		return balance.Demand{}, false
	}
	if demand, measured := p.measuredOf(service); measured {
		return demand, true
	}
	return p.assumedOf(service, service.Topology.Keys), true
}

// measuredOf returns the measured demand of a Service, if it applies.
func (p *Planner) measuredOf(service *model.Service) (balance.Demand, bool) {
	measured := p.cluster.MeasuredDemand(service)
	if measured == nil {
		return balance.Demand{}, false
	}
	p.mutex.Lock()
	nodeClasses := p.indexFor(WithZone(service.Topology.Keys)).nodeClasses
	p.mutex.Unlock()
	return nodeClasses.Measured(measured)
}

// WithZone returns keys that distinguish zones: the given keys, plus the zone if it is not among them.
func WithZone(keys []policy.Key) []policy.Key {
	if slices.Contains(keys, policy.Zone) {
		return keys
	}
	return append(slices.Clone(keys), policy.Zone)
}

// assumedOf returns the assumed demand of the nodes on a Service, for plans by some keys. It is equal for all nodes
// unless their labels set it. If the Service names clients, it is the number of their ready endpoints on each node.
func (p *Planner) assumedOf(service *model.Service, keys []policy.Key) balance.Demand {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	index := p.indexFor(keys)
	if len(service.Topology.Clients) == 0 {
		return index.nodeClasses.ByLabels()
	}
	clients := nameOfClients(service.Topology.Clients)
	demand, known := index.byClients[clients]
	if !known {
		clientsByNode := p.readyEndpoints(service.Clients())
		demand = index.nodeClasses.Named(clientsByNode)
		if index.byClients == nil {
			index.byClients = map[string]balance.Demand{}
		}
		p.evictIfFull(len(clientsByNode))
		index.byClients[clients] = demand
	}
	return demand
}

// readyEndpoints counts the ready endpoints of some Services, by node.
func (p *Planner) readyEndpoints(services []model.ObjectName) map[string]uint32 {
	byNode := map[string]uint32{}
	for _, service := range services {
		ready, known := p.clientCounts[service]
		if !known {
			ready = ReadyEndpoints(p.cluster.SlicesOf(service))
			if p.clientCounts == nil {
				p.clientCounts = map[model.ObjectName]map[string]uint32{}
			}
			p.clientCounts[service] = ready
		}
		for node, count := range ready {
			byNode[node] += count
		}
	}
	return byNode
}

// ReadyEndpoints counts the ready endpoints in a Service's slices, by node. An endpoint with addresses in both families
// counts once.
func ReadyEndpoints(endpointSlices []*model.EndpointSlice) map[string]uint32 {
	byFamily := map[model.Family]map[string]uint32{model.IPv4: {}, model.IPv6: {}}
	for _, slice := range endpointSlices {
		for i := range slice.Endpoints {
			if endpoint := &slice.Endpoints[i]; endpoint.Ready && endpoint.Node != "" {
				byFamily[slice.Family][endpoint.Node]++
			}
		}
	}
	ready := byFamily[model.IPv4]
	for node, count := range byFamily[model.IPv6] {
		ready[node] = max(ready[node], count)
	}
	return ready
}

// indexFor returns the index of the nodes by some keys. The caller holds the mutex.
func (p *Planner) indexFor(keys []policy.Key) *keyIndex {
	name := nameOf(keys)
	index := p.byKeys[name]
	if index == nil {
		index = &keyIndex{nodeClasses: balance.NewNodeClasses(keys, p.cluster.Self().Name)}
		for node := range p.cluster.Nodes() {
			index.nodeClasses.Set(node.Name, node.Labels)
		}
		p.evictIfFull(index.nodeClasses.Len())
		p.byKeys[name] = index
	}
	index.isUsed = true
	return index
}

// nameOf returns a text that identifies a list of keys.
func nameOf(keys []policy.Key) string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = string(key)
	}
	return strings.Join(names, ",")
}

func nameOfClients(clients []string) string { return strings.Join(clients, ",") }
