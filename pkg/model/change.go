package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Change is what changed in the cluster: each object in its new state, or nil if it is gone.
type Change struct {
	Services map[ObjectName]*Service
	Slices   map[ObjectName]*EndpointSlice
	Nodes    map[string]*Node
	// AllNodes reports whether all nodes of the cluster are known. Nil: unchanged.
	AllNodes *bool
	// Demotions is what is held against nodes. Nil: it is over.
	Demotions map[DemotionKey]*Demotion
	// Demands are measured demand by Service. Nil: there is none any more. DemandState says whether it counts; nil:
	// unchanged.
	Demands     map[ObjectName]*Demand
	DemandState *DemandState
	// ServiceCIDRs are the ranges from which ClusterIPs are taken, by the name of their object. Nil: the object is gone.
	ServiceCIDRs map[string][]netip.Prefix
	// LocalAddrs are all addresses that this machine's interfaces have now. Nil: unchanged.
	LocalAddrs []netip.Addr
	// APIServers is where this process reaches the API server. Nil: unchanged.
	APIServers []netip.AddrPort
	// Probed is where proxies find out whether nodes answer. Nil: unchanged.
	Probed *Probed
}

// Probed is where proxies find out whether nodes answer: at the same TCP ports of all addresses.
type Probed struct {
	Addrs map[netip.Addr]bool
	Ports []uint16 // never change
}

func (p *Probed) has(f Frontend) bool {
	return p != nil && f.Protocol == TCP && p.Addrs[f.Addr] && slices.Contains(p.Ports, f.Port)
}

// IsEmpty reports whether nothing changed.
func (c Change) IsEmpty() bool {
	return len(c.Services)+len(c.Slices)+len(c.Nodes)+len(c.Demotions)+len(c.Demands)+len(c.ServiceCIDRs) == 0 &&
		c.AllNodes == nil && c.DemandState == nil && c.LocalAddrs == nil && c.APIServers == nil &&
		c.Probed == nil
}

// Merge returns the change that c followed by later makes.
func (c Change) Merge(later Change) Change {
	return Change{
		Services:     merge(c.Services, later.Services),
		Slices:       merge(c.Slices, later.Slices),
		Nodes:        merge(c.Nodes, later.Nodes),
		Demotions:    merge(c.Demotions, later.Demotions),
		Demands:      merge(c.Demands, later.Demands),
		AllNodes:     cmp.Or(later.AllNodes, c.AllNodes),
		DemandState:  cmp.Or(later.DemandState, c.DemandState),
		ServiceCIDRs: merge(c.ServiceCIDRs, later.ServiceCIDRs),
		LocalAddrs:   orEarlier(later.LocalAddrs, c.LocalAddrs),
		APIServers:   orEarlier(later.APIServers, c.APIServers),
		Probed:       cmp.Or(later.Probed, c.Probed),
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
