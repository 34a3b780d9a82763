package model

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Cluster is the state of the cluster after the changes so far.
type Cluster struct {
	// NodePorts says on which addresses node ports are served. It is set before the first change.
	NodePorts NodePortAddresses

	self     string
	services map[ObjectName]*Service
	slices   map[ObjectName]*EndpointSlice
	// slicesOf are the slices of each Service, by name. A slice may be there before its Service.
	slicesOf map[ObjectName][]*EndpointSlice
	nodes    map[string]*Node
	// allNodes: these are all nodes of the cluster.
	allNodes bool
	// demotions is everything that is held against nodes; avoid is the deciding part of it, by node.
	demotions map[DemotionKey]*Demotion
	effective map[string]avoids
	claims    claims
	// servicesByKey are the Services whose topology keys name a label, by that label.
	servicesByKey map[policy.Key]map[ObjectName]bool
	// slicesWithoutZone are the slices that do not name the zone of every endpoint. For those without one the Node's zone counts.
	slicesWithoutZone map[*EndpointSlice]bool
	bounded           bounded
	// demands are measured demand by Service, and demandState says whether it counts.
	demands     map[ObjectName]*Demand
	demandState DemandState

	serviceCIDRs map[string][]netip.Prefix
	localAddrs   []netip.Addr
	local        map[netip.Addr]bool // the same
	apiServers   map[Frontend]bool
	probed       *Probed
}

// NewCluster returns an empty cluster as seen from a node.
func NewCluster(self string) *Cluster {
	return &Cluster{
		self:              self,
		services:          map[ObjectName]*Service{},
		slices:            map[ObjectName]*EndpointSlice{},
		slicesOf:          map[ObjectName][]*EndpointSlice{},
		nodes:             map[string]*Node{},
		demotions:         map[DemotionKey]*Demotion{},
		effective:         map[string]avoids{},
		claims:            claims{byFrontend: map[Frontend][]claim{}, external: map[netip.Addr]map[ObjectName]bool{}},
		servicesByKey:     map[policy.Key]map[ObjectName]bool{},
		slicesWithoutZone: map[*EndpointSlice]bool{},
		bounded:           newBounded(),
		demands:           map[ObjectName]*Demand{},

		serviceCIDRs: map[string][]netip.Prefix{},
	}
}

// SeenFrom returns the same state as another node sees it, on a machine that has these addresses. It costs the same
// whatever the cluster holds, because the two share their memory: neither may change from then on.
func (c *Cluster) SeenFrom(node string, localAddrs []netip.Addr) *Cluster {
	view := *c
	view.self, view.localAddrs, view.local = node, localAddrs, make(map[netip.Addr]bool, len(localAddrs))
	for _, addr := range localAddrs {
		view.local[addr] = true
	}
	return &view
}

// ServiceCIDRs returns the ranges from which ClusterIPs are taken, sorted, each once.
func (c *Cluster) ServiceCIDRs() []netip.Prefix {
	var all []netip.Prefix
	for _, prefixes := range c.serviceCIDRs {
		all = append(all, prefixes...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// LocalAddrs returns the addresses that this machine's interfaces have, in the order of the change that brought them.
func (c *Cluster) LocalAddrs() []netip.Addr { return c.localAddrs }

// Service returns the Service of a name; nil without one.
func (c *Cluster) Service(name ObjectName) *Service { return c.services[name] }

// ServiceNames returns the names of all Services, sorted.
func (c *Cluster) ServiceNames() []ObjectName {
	return slices.SortedFunc(maps.Keys(c.services), ObjectName.Compare)
}

// SlicesOf returns the slices of a Service, sorted by name. They must not be changed.
func (c *Cluster) SlicesOf(service ObjectName) []*EndpointSlice { return c.slicesOf[service] }

// Self returns the node from which the cluster is seen, by the last version of its object. Its labels are nil if there
// never was one.
func (c *Cluster) Self() Node {
	if node := c.nodes[c.self]; node != nil {
		return *node
	}
	return Node{Name: c.self}
}

// Nodes yields the nodes that are known, in any order.
func (c *Cluster) Nodes() iter.Seq[*Node] { return maps.Values(c.nodes) }

// NodeCount returns how many nodes are known.
func (c *Cluster) NodeCount() int { return len(c.nodes) }

// HasAllNodes reports whether these are all nodes of the cluster.
func (c *Cluster) HasAllNodes() bool { return c.allNodes }

// NodeLabels returns the labels of a node, and whether it is known.
func (c *Cluster) NodeLabels(name string) (labels map[string]string, known bool) {
	node := c.nodes[name]
	if node == nil {
		return nil, false
	}
	return node.Labels, true
}

// Apply takes in a change and returns the names of the Services that may have to be decided anew, sorted: those that
// changed, those whose slices changed, those whose topology reads a label that changed on this node, or on one that has
// their endpoints, those with endpoints on a node that is now avoided or no longer is, those that gain or lose a
// frontend because of another Service, and, if this node's own addresses changed, those with source ranges (see
// AllowedSources) and with external IPs.
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
	if all := change.AllNodes; all != nil && *all != c.allNodes {
		c.allNodes = *all
		maps.Copy(dirty, c.bounded.services)
	}
	if change.LocalAddrs != nil {
		c.applyLocalAddrs(change.LocalAddrs, dirty)
	}
	if change.Probed != nil {
		c.applyProbed(change.Probed, dirty)
	}
	if change.APIServers != nil {
		c.applyAPIServers(change.APIServers, dirty)
	}
	return slices.SortedFunc(maps.Keys(dirty), ObjectName.Compare)
}

// preallocate makes room for the first change, which is the complete state: maps that grow step by step copy it twice.
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
	c.claims.claim(service, dirty)
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
	// The label that names the Service may have been edited: the old Service loses the slice (kube-proxy forgets that).
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
	at, _ := slices.BinarySearchFunc(list, name, func(s *EndpointSlice, name ObjectName) int { return s.Name.Compare(name) })
	c.setSlicesOf(slice.Service, slices.Insert(list, at, slice))
}

func (c *Cluster) setSlicesOf(service ObjectName, list []*EndpointSlice) {
	if len(list) == 0 {
		delete(c.slicesOf, service)
		return
	}
	c.slicesOf[service] = list
}

// applyNodes marks the Services that have endpoints on nodes whose value of one of their topology keys changed, or that
// read a changed value on this node. The nodes are first gathered by label, so the work is the sum of the nodes and of
// the Services' endpoints, however many nodes change at once.
func (c *Cluster) applyNodes(nodes map[string]*Node, dirty map[ObjectName]bool) {
	changed := map[policy.Key]map[string]bool{} // the nodes, by the label whose value changed
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

// markServicesUsing marks the Services that read the label of a key whose value changed on some nodes.
func (c *Cluster) markServicesUsing(key policy.Key, nodes map[string]bool, dirty map[ObjectName]bool) {
	readers := c.servicesByKey[key]
	switch {
	case nodes[c.self]:
		maps.Copy(dirty, readers)
	case key == policy.Hostname:
	case key == policy.Zone:
		for slice := range c.slicesWithoutZone {
			if readers[slice.Service] && slice.dependsOnLabel(key, nodes) {
				dirty[slice.Service] = true
			}
		}
	default:
		for reader := range readers {
			if slices.ContainsFunc(c.slicesOf[reader], func(slice *EndpointSlice) bool { return slice.dependsOnLabel(key, nodes) }) {
				dirty[reader] = true
			}
		}
	}
}

// setNode keeps this cluster's own node unchanged when its object goes: the machine is still there, and without its
// labels and addresses every node port would vanish.
func (c *Cluster) setNode(name string, node *Node) *Node {
	switch {
	case node != nil:
		c.nodes[name] = node
	case name != c.self:
		delete(c.nodes, name)
	}
	return c.nodes[name]
}

// applySelf marks what depends only on this node: hints, which a Service without topology keys may have, depend on its
// zone, and source ranges on its addresses.
func (c *Cluster) applySelf(node *Node, dirty map[ObjectName]bool) {
	old := c.nodes[c.self]
	if node == nil {
		return
	}
	zoned := changedLabels(old, node)[string(policy.Zone)]
	moved := !slices.Equal(addressesOf(old), node.Addresses)
	if !zoned && !moved {
		return
	}
	if moved {
		for _, services := range c.claims.external {
			maps.Copy(dirty, services)
		}
	}
	for name, service := range c.services {
		if zoned && len(service.Topology.Keys) == 0 || moved && len(service.SourceRanges) > 0 {
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

// changedLabels returns the keys that a node's new version changes, removes or adds. Nil versions have no labels.
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
		if now, ok := after[key]; !ok || now != value {
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
