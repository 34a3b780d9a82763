package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Change is a set of changed objects of the cluster, each in its new state. nil means that the object was deleted.
type Change struct {
	Services map[ObjectName]*Service
	Slices   map[ObjectName]*EndpointSlice
	Nodes    map[string]*Node
	// AllNodes reports whether all nodes of the cluster are known. nil means unchanged.
	AllNodes *bool
	// Demotions are the changed demotions of nodes. nil means that the demotion ended.
	Demotions map[DemotionKey]*Demotion
	// Demands is the measured demand by Service; nil means that it was removed. DemandState is whether measured demand is
	// used; nil means unchanged.
	Demands     map[ObjectName]*Demand
	DemandState *DemandState
	// DemandBacklog are the measurements that wait for the publisher. nil means unchanged.
	DemandBacklog *DemandBacklog
	// ServiceCIDRs are the ClusterIP ranges by the name of their object. nil means that the object was deleted.
	ServiceCIDRs map[string][]netip.Prefix
	// LocalAddrs are all current addresses of this machine's interfaces. nil means unchanged.
	LocalAddrs []netip.Addr
	// APIServers are the addresses at which this process reaches the API server. nil means unchanged.
	APIServers []netip.AddrPort
	// ProbeTargets are the addresses and ports that proxies probe. nil means unchanged.
	ProbeTargets *ProbeTargets
}

// ProbeTargets is where proxies probe nodes: the same TCP ports on all addresses.
type ProbeTargets struct {
	Addrs map[netip.Addr]bool
	Ports []uint16 // never change
}

func (p *ProbeTargets) has(f Frontend) bool {
	return p != nil && f.Protocol == TCP && p.Addrs[f.Addr] && slices.Contains(p.Ports, f.Port)
}

// IsEmpty reports whether nothing changed.
func (c Change) IsEmpty() bool {
	return len(c.Services)+len(c.Slices)+len(c.Nodes)+len(c.Demotions)+len(c.Demands)+len(c.ServiceCIDRs) == 0 &&
		c.AllNodes == nil && c.DemandState == nil && c.DemandBacklog == nil && c.LocalAddrs == nil && c.APIServers == nil &&
		c.ProbeTargets == nil
}

// Merge returns the change that has the same effect as c followed by later.
func (c Change) Merge(later Change) Change {
	return Change{
		Services:      merge(c.Services, later.Services),
		Slices:        merge(c.Slices, later.Slices),
		Nodes:         merge(c.Nodes, later.Nodes),
		Demotions:     merge(c.Demotions, later.Demotions),
		Demands:       merge(c.Demands, later.Demands),
		AllNodes:      cmp.Or(later.AllNodes, c.AllNodes),
		DemandState:   cmp.Or(later.DemandState, c.DemandState),
		DemandBacklog: cmp.Or(later.DemandBacklog, c.DemandBacklog),
		ServiceCIDRs:  merge(c.ServiceCIDRs, later.ServiceCIDRs),
		LocalAddrs:    orEarlier(later.LocalAddrs, c.LocalAddrs),
		APIServers:    orEarlier(later.APIServers, c.APIServers),
		ProbeTargets:  cmp.Or(later.ProbeTargets, c.ProbeTargets),
	}
}

func orEarlier[T any](later, earlier []T) []T {
	if later == nil {
		return earlier
	}
	return later
}

func merge[K comparable, V any](earlier, later map[K]V) map[K]V {
	merged := make(map[K]V, len(earlier)+len(later))
	maps.Copy(merged, earlier)
	maps.Copy(merged, later)
	return merged
}
