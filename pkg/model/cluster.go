package model

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Cluster is the state of the cluster after all applied changes.
type Cluster struct {
	// NodePorts are the addresses on which node ports are served. It is set before the first change.
	NodePorts NodePortAddresses

	self     string
	services map[ObjectName]*Service
	slices   map[ObjectName]*EndpointSlice
	// slicesOf are the slices of each Service, sorted by name. A slice may exist before its Service.
	slicesOf map[ObjectName][]*EndpointSlice
	nodes    map[string]*Node
	// hasAllNodes is set if nodes holds all nodes of the cluster.
	hasAllNodes bool
	// demotions are all demotions of nodes. effective has those that apply to each node.
	demotions map[DemotionKey]*Demotion
	effective map[string]familyDemotions
	claims    claims
	// servicesByKey are the Services by the labels that their topology keys name.
	servicesByKey map[policy.Key]map[ObjectName]bool
	// slicesWithoutZone are the slices in which an endpoint has no zone. Such an endpoint has its Node's zone.
	slicesWithoutZone map[*EndpointSlice]bool
	bounded           boundedServices
	// demands is the measured demand by Service. demandState is whether it is used.
	demands       map[ObjectName]*Demand
	demandState   DemandState
	demandBacklog DemandBacklog

	serviceCIDRs map[string][]netip.Prefix
	localAddrs   []netip.Addr
	localSet     map[netip.Addr]bool // the same addresses as a set
	apiServers   map[Frontend]bool
	probeTargets *ProbeTargets
}

// NewCluster returns an empty cluster from the point of view of a node.
func NewCluster(self string) *Cluster {
	return &Cluster{
		self:              self,
		services:          map[ObjectName]*Service{},
		slices:            map[ObjectName]*EndpointSlice{},
		slicesOf:          map[ObjectName][]*EndpointSlice{},
		nodes:             map[string]*Node{},
		demotions:         map[DemotionKey]*Demotion{},
		effective:         map[string]familyDemotions{},
		claims:            claims{byFrontend: map[Frontend][]claim{}, external: map[netip.Addr]map[ObjectName]bool{}},
		servicesByKey:     map[policy.Key]map[ObjectName]bool{},
		slicesWithoutZone: map[*EndpointSlice]bool{},
		bounded:           newBoundedServices(),
		demands:           map[ObjectName]*Demand{},

		serviceCIDRs: map[string][]netip.Prefix{},
	}
}

// ViewFrom returns the same state from the point of view of another node, on a machine with the given addresses. It
// does not depend on the size of the cluster, because both share their memory: neither may change afterwards.
func (c *Cluster) ViewFrom(node string, localAddrs []netip.Addr) *Cluster {
	view := *c
	view.self, view.localAddrs, view.localSet = node, localAddrs, make(map[netip.Addr]bool, len(localAddrs))
	for _, addr := range localAddrs {
		view.localSet[addr] = true
	}
	return &view
}

// ServiceCIDRs returns the distinct ClusterIP ranges, sorted.
func (c *Cluster) ServiceCIDRs() []netip.Prefix {
	var all []netip.Prefix
	for _, prefixes := range c.serviceCIDRs {
		all = append(all, prefixes...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// LocalAddrs returns the addresses of this machine's interfaces, in the order of the change that set them.
func (c *Cluster) LocalAddrs() []netip.Addr { return c.localAddrs }

// Service returns the Service with a name, or nil.
func (c *Cluster) Service(name ObjectName) *Service { return c.services[name] }

// ServiceNames returns the names of all Services, sorted.
func (c *Cluster) ServiceNames() []ObjectName {
	return slices.SortedFunc(maps.Keys(c.services), ObjectName.Compare)
}

// SlicesOf returns the slices of a Service, sorted by name. They must not be changed.
func (c *Cluster) SlicesOf(service ObjectName) []*EndpointSlice { return c.slicesOf[service] }

// Self returns this node in the last version of its object. Its labels are nil if there never was an object.
func (c *Cluster) Self() Node {
	if node := c.nodes[c.self]; node != nil {
		return *node
	}
	return Node{Name: c.self}
}

// Nodes yields the known nodes in any order.
func (c *Cluster) Nodes() iter.Seq[*Node] { return maps.Values(c.nodes) }

// NodeCount returns the number of known nodes.
func (c *Cluster) NodeCount() int { return len(c.nodes) }

// HasAllNodes reports whether all nodes of the cluster are known.
func (c *Cluster) HasAllNodes() bool { return c.hasAllNodes }

// NodeLabels returns the labels of a node, and whether it is known.
func (c *Cluster) NodeLabels(name string) (labels map[string]string, known bool) {
	node := c.nodes[name]
	if node == nil {
		return nil, false
	}
	return node.Labels, true
}

// Apply applies a change and returns the sorted names of the Services that may have to be decided again. These are:
//
//   - Services that changed, and those whose slices changed;
//   - Services whose topology depends on a label that changed on this node or on a node with their endpoints;
//   - Services with endpoints on a node whose demotion changed;
//   - Services that gain or lose a frontend because of another Service;
//   - if this node's addresses changed, Services with source ranges (see AllowedSources) or external IPs.
func (c *Cluster) Apply(change Change) []ObjectName {
	dirty := make(map[ObjectName]bool, max(len(change.Services), len(change.Slices)))
	c.preallocate(change)
	for name, prefixes := range change.ServiceCIDRs {
		if c.serviceCIDRs[name] = prefixes; prefixes == nil {
			delete(c.serviceCIDRs, name)
		}
	}
	for name, service := range change.Services {
		c.applyService(name, service, dirty)
	}
	for name, slice := range change.Slices {
		c.applySlice(name, slice, dirty)
	}
	c.applyNodes(change.Nodes, dirty)
	c.applyDemotions(change.Demotions, dirty)
	c.applyDemand(change.Demands, change.DemandState)
	if change.DemandBacklog != nil {
		c.demandBacklog = *change.DemandBacklog
	}
	if all := change.AllNodes; all != nil && *all != c.hasAllNodes {
		c.hasAllNodes = *all
		maps.Copy(dirty, c.bounded.services)
	}
	if change.LocalAddrs != nil {
		c.applyLocalAddrs(change.LocalAddrs, dirty)
	}
	if change.ProbeTargets != nil {
		c.applyProbeTargets(change.ProbeTargets, dirty)
	}
	if change.APIServers != nil {
		c.applyAPIServers(change.APIServers, dirty)
	}
	return slices.SortedFunc(maps.Keys(dirty), ObjectName.Compare)
}

// preallocate sizes the maps for the first change, which is the complete state. Maps that grow step by step would copy
// it twice.
func (c *Cluster) preallocate(first Change) {
	if len(c.services) == 0 && len(first.Services) > 0 {
		c.services = make(map[ObjectName]*Service, len(first.Services))
		c.claims.byFrontend = make(map[Frontend][]claim, len(first.Services))
	}
	if len(c.slices) == 0 && len(first.Slices) > 0 {
		c.slices = make(map[ObjectName]*EndpointSlice, len(first.Slices))
		c.slicesOf = make(map[ObjectName][]*EndpointSlice, len(first.Slices))
	}
}

func (c *Cluster) applyService(name ObjectName, service *Service, dirty map[ObjectName]bool) {
	dirty[name] = true
	if old := c.services[name]; old != nil {
		c.claims.release(old, dirty)
		c.markOverridden(old, dirty)
		c.bounded.remove(old)
		for _, key := range old.Topology.Keys {
			if delete(c.servicesByKey[key], name); len(c.servicesByKey[key]) == 0 {
				delete(c.servicesByKey, key)
			}
		}
	}
	if service == nil {
		delete(c.services, name)
		return
	}
	c.services[name] = service
	c.claims.add(service, dirty)
	c.markOverridden(service, dirty)
	c.bounded.add(service)
	for _, key := range service.Topology.Keys {
		if c.servicesByKey[key] == nil {
			c.servicesByKey[key] = map[ObjectName]bool{}
		}
		c.servicesByKey[key][name] = true
	}
}

func (c *Cluster) applySlice(name ObjectName, slice *EndpointSlice, dirty map[ObjectName]bool) {
	// The label that names the Service may have been edited: then the old Service loses the slice (kube-proxy misses
	// this).
	if old := c.slices[name]; old != nil {
		dirty[old.Service] = true
		c.bounded.markClientsChanged(old.Service)
		c.setSlicesOf(old.Service, slices.DeleteFunc(slices.Clone(c.slicesOf[old.Service]), func(s *EndpointSlice) bool { return s == old }))
		delete(c.slices, name)
		delete(c.slicesWithoutZone, old)
	}
	if slice == nil {
		return
	}
	if slices.ContainsFunc(slice.Endpoints, func(endpoint SliceEndpoint) bool { return endpoint.Zone == "" }) {
		c.slicesWithoutZone[slice] = true
	}
	dirty[slice.Service] = true
	c.bounded.markClientsChanged(slice.Service)
	c.slices[name] = slice
	list := slices.Clone(c.slicesOf[slice.Service])
	index, _ := slices.BinarySearchFunc(list, name, func(s *EndpointSlice, name ObjectName) int { return s.Name.Compare(name) })
	c.setSlicesOf(slice.Service, slices.Insert(list, index, slice))
}

func (c *Cluster) setSlicesOf(service ObjectName, list []*EndpointSlice) {
	if len(list) == 0 {
		delete(c.slicesOf, service)
		return
	}
	c.slicesOf[service] = list
}

// applyNodes marks the Services with a topology key whose value changed, on this node or on a node with their
// endpoints. Changed nodes are first grouped by label, so the cost is the sum of the nodes and of the Services'
// endpoints, however many nodes change at once.
func (c *Cluster) applyNodes(nodes map[string]*Node, dirty map[ObjectName]bool) {
	changed := map[policy.Key]map[string]bool{} // the changed nodes by label
	for name, node := range nodes {
		if name == c.self {
			c.applySelf(node, dirty)
		}
		old := c.nodes[name]
		labels := changedLabels(old, c.setNode(name, node))
		for label := range labels {
			key := policy.Key(label)
			if c.servicesByKey[key] == nil {
				continue
			}
			if changed[key] == nil {
				changed[key] = map[string]bool{}
			}
			changed[key][name] = true
		}
		if len(labels) > 0 || (old == nil) != (c.nodes[name] == nil) {
			c.bounded.markNodeChanged(name == c.self, dirty)
		}
	}
	for key, nodes := range changed {
		c.markServicesUsing(key, nodes, dirty)
	}
}

// markServicesUsing marks the Services that use a key as a topology key, if its label changed on some nodes.
func (c *Cluster) markServicesUsing(key policy.Key, nodes map[string]bool, dirty map[ObjectName]bool) {
	services := c.servicesByKey[key]
	switch {
	case nodes[c.self]:
		maps.Copy(dirty, services)
	case key == policy.Hostname:
	case key == policy.Zone:
		for slice := range c.slicesWithoutZone {
			if services[slice.Service] && slice.dependsOnLabel(key, nodes) {
				dirty[slice.Service] = true
			}
		}
	default:
		for service := range services {
			if slices.ContainsFunc(c.slicesOf[service], func(slice *EndpointSlice) bool { return slice.dependsOnLabel(key, nodes) }) {
				dirty[service] = true
			}
		}
	}
}

// setNode sets or deletes a node. This node is kept when its object is deleted: the machine still exists, and without
// its labels and addresses every node port would vanish.
func (c *Cluster) setNode(name string, node *Node) *Node {
	switch {
	case node != nil:
		c.nodes[name] = node
	case name != c.self:
		delete(c.nodes, name)
	}
	return c.nodes[name]
}

// applySelf marks the Services that depend only on this node. Hints, which apply to Services without topology keys,
// depend on its zone, and source ranges depend on its addresses.
func (c *Cluster) applySelf(node *Node, dirty map[ObjectName]bool) {
	old := c.nodes[c.self]
	if node == nil {
		return
	}
	zoneChanged := changedLabels(old, node)[string(policy.Zone)]
	addressesChanged := !slices.Equal(addressesOf(old), node.Addresses)
	if !zoneChanged && !addressesChanged {
		return
	}
	if addressesChanged {
		for _, services := range c.claims.external {
			maps.Copy(dirty, services)
		}
	}
	for name, service := range c.services {
		if zoneChanged && len(service.Topology.Keys) == 0 || addressesChanged && len(service.SourceRanges) > 0 {
			dirty[name] = true
		}
	}
}

func addressesOf(node *Node) []netip.Addr {
	if node == nil {
		return nil
	}
	return node.Addresses
}

// changedLabels returns the keys that were changed, removed or added between two versions of a node. A nil version has
// no labels.
func changedLabels(old, current *Node) map[string]bool {
	changed := map[string]bool{}
	labels := func(node *Node) map[string]string {
		if node == nil {
			return nil
		}
		return node.Labels
	}
	before, after := labels(old), labels(current)
	for key, value := range before {
		if newValue, ok := after[key]; !ok || newValue != value {
			changed[key] = true
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			changed[key] = true
		}
	}
	return changed
}
