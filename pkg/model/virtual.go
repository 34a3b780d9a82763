package model

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// VirtualIP says why no connection can be sent to an address: it is a ClusterIP, or may become one at any time. No
// machine has it, and the kernel translates no connection a second time. The API accepts such an endpoint, though
// Kubernetes' documentation forbids it: "The endpoint IP addresses cannot be the cluster IPs of other Kubernetes
// Services, because kube-proxy doesn't support virtual IPs as a destination" (Services, "Custom EndpointSlices").
//
// External IPs and load balancers' addresses are not virtual in this sense: a machine may have them. Nor is an address that
// this node has itself, for a DNS cache perhaps: connections arrive there.
type VirtualIP struct {
	// Service has it as a ClusterIP; empty if no known Service has.
	Service ObjectName
	// Range is the ServiceCIDR that it is in, if no known Service has it.
	Range netip.Prefix
}

// VirtualIP returns why an address is virtual, and whether it is.
func (c *Cluster) VirtualIP(addr netip.Addr) (VirtualIP, bool) {
	if c.local[addr] {
		return VirtualIP{}, false
	}
	if first, owned := c.virtual.owners[addr]; owned {
		for _, other := range c.virtual.others[addr] {
			if other.Compare(first) < 0 {
				first = other
			}
		}
		return VirtualIP{Service: first}, true
	}
	within, is := c.virtual.rangeOf(addr)
	return VirtualIP{Range: within}, is
}

// MarkVirtual takes the endpoints of a Service with virtual addresses out of use, and returns why, by address; nil if
// there are none. The Service is one of the cluster's.
func (c *Cluster) MarkVirtual(service ObjectName, endpoints []PortEndpoint) map[netip.Addr]VirtualIP {
	if c.virtual.services[service] == 0 {
		return nil
	}
	return c.MarkAllVirtual(endpoints)
}

// MarkAllVirtual does what MarkVirtual does, for endpoints that the cluster need not know.
func (c *Cluster) MarkAllVirtual(endpoints []PortEndpoint) map[netip.Addr]VirtualIP {
	var found map[netip.Addr]VirtualIP
	for i := range endpoints {
		endpoint := &endpoints[i]
		addr := endpoint.Addr.Addr()
		why, is := c.VirtualIP(addr)
		if !is {
			continue
		}
		if found == nil {
			found = map[netip.Addr]VirtualIP{}
		}
		found[addr], endpoint.Ready, endpoint.Serving = why, false, false
	}
	return found
}

// virtualIPs knows which addresses are virtual, and which Services have them as endpoints: when a ClusterIP comes or goes,
// those are found without a look at all endpoints.
//
// Entering all endpoints would take megabytes. But ClusterIPs lie close together, and endpoints elsewhere, so we enter
// only endpoints that lie in a ServiceCIDR, or in a block that has had a ClusterIP. Most clusters have none.
type virtualIPs struct {
	ranges []netip.Prefix // the ServiceCIDRs
	// owners are the Services that have a ClusterIP, by it. The API server gives each to one Service, but we may hear of a
	// deletion only after the address has a new Service: others are all except the first.
	owners map[netip.Addr]ObjectName
	others map[netip.Addr][]ObjectName
	blocks map[uint64]bool // that have had a ClusterIP
	// changed are the addresses that became a ClusterIP or stopped being one since settle; grown says whether there is a
	// new block.
	changed []netip.Addr
	grown   bool
	// near are the endpoints in ranges and blocks, with the number of entries that a Service has for an address. services
	// sums them up.
	near     map[netip.Addr]map[ObjectName]int
	services map[ObjectName]int
}

func newVirtualIPs() virtualIPs {
	return virtualIPs{
		owners: map[netip.Addr]ObjectName{}, others: map[netip.Addr][]ObjectName{}, blocks: map[uint64]bool{},
		near: map[netip.Addr]map[ObjectName]int{}, services: map[ObjectName]int{},
	}
}

// rangeOf returns the first of the ServiceCIDRs that an address is in.
func (v *virtualIPs) rangeOf(addr netip.Addr) (netip.Prefix, bool) {
	for _, prefix := range v.ranges {
		if prefix.Contains(addr) {
			return prefix, true
		}
	}
	return netip.Prefix{}, false
}

// blockOf returns the block that an address is in: a /16 of IPv4, a /64 of IPv6.
func blockOf(addr netip.Addr) uint64 {
	if addr.Is4() {
		bytes := addr.As4()
		return uint64(binary.BigEndian.Uint16(bytes[:]))
	}
	bytes := addr.As16()
	return binary.BigEndian.Uint64(bytes[:])
}

func (v *virtualIPs) isNear(addr netip.Addr) bool {
	if v.blocks[blockOf(addr)] {
		return true
	}
	_, within := v.rangeOf(addr)
	return within
}

// enter enters the endpoints of a slice, or takes them out: by is 1 or -1.
func (v *virtualIPs) enter(slice *EndpointSlice, by int) {
	for i := range slice.Endpoints {
		addr := slice.Endpoints[i].Addr
		if !v.isNear(addr) {
			continue
		}
		if v.near[addr] == nil {
			v.near[addr] = map[ObjectName]int{}
		}
		count(v.near[addr], slice.Service, by)
		if len(v.near[addr]) == 0 {
			delete(v.near, addr)
		}
		count(v.services, slice.Service, by)
	}
}

func count(counts map[ObjectName]int, name ObjectName, by int) {
	if counts[name] += by; counts[name] == 0 {
		delete(counts, name)
	}
}

// lookAgain enters the endpoints of all slices again.
func (v *virtualIPs) lookAgain(all map[ObjectName]*EndpointSlice) {
	clear(v.near)
	clear(v.services)
	for _, slice := range all {
		v.enter(slice, 1)
	}
}

// applyServiceCIDRs marks all Services with endpoints close to ClusterIPs, because ranges rarely come or go.
func (c *Cluster) applyServiceCIDRs(changed map[string][]netip.Prefix, dirty map[ObjectName]bool) {
	for name, prefixes := range changed {
		if c.serviceCIDRs[name] = prefixes; prefixes == nil {
			delete(c.serviceCIDRs, name)
		}
	}
	ranges := c.ServiceCIDRs()
	if slices.Equal(ranges, c.virtual.ranges) {
		return
	}
	c.virtual.markAll(dirty)
	c.virtual.ranges = ranges
	c.virtual.lookAgain(c.slices)
	c.virtual.markAll(dirty)
}

func (v *virtualIPs) markAll(dirty map[ObjectName]bool) {
	for service := range v.services {
		dirty[service] = true
	}
}

// replaceClusterIPs takes in which ClusterIPs a Service has now, and notes addresses that become a ClusterIP or stop
// being one: see settle. Nil: there is no such Service.
func (v *virtualIPs) replaceClusterIPs(old, current *Service) {
	before, after := clusterIPsOf(old), clusterIPsOf(current)
	for _, addr := range before {
		if !slices.Contains(after, addr) {
			v.release(addr, old.Name)
		}
	}
	for _, addr := range after {
		if !slices.Contains(before, addr) {
			v.claim(addr, current.Name)
		}
	}
}

func (v *virtualIPs) claim(addr netip.Addr, name ObjectName) {
	if _, owned := v.owners[addr]; owned {
		v.others[addr] = append(v.others[addr], name)
		return
	}
	v.owners[addr] = name
	v.changed = append(v.changed, addr)
	if block := blockOf(addr); !v.blocks[block] {
		v.blocks[block], v.grown = true, true
	}
}

func (v *virtualIPs) release(addr netip.Addr, name ObjectName) {
	others := v.others[addr]
	switch at := slices.Index(others, name); {
	case at >= 0:
		others = slices.Delete(others, at, at+1)
	case len(others) > 0:
		v.owners[addr], others = others[0], others[1:]
	default:
		delete(v.owners, addr)
		v.changed = append(v.changed, addr)
	}
	if v.others[addr] = others; len(others) == 0 {
		delete(v.others, addr)
	}
}

// settle marks the Services with an endpoint that became virtual because of a ClusterIP, or no longer is. In a
// ServiceCIDR it is virtual anyway.
func (v *virtualIPs) settle(all map[ObjectName]*EndpointSlice, dirty map[ObjectName]bool) {
	if v.grown {
		v.lookAgain(all)
	}
	for _, addr := range v.changed {
		if _, within := v.rangeOf(addr); !within {
			v.mark(addr, dirty)
		}
	}
	v.changed, v.grown = nil, false
}

// mark marks the Services with an endpoint, if it is near ClusterIPs.
func (v *virtualIPs) mark(addr netip.Addr, dirty map[ObjectName]bool) {
	for service := range v.near[addr] {
		dirty[service] = true
	}
}

func clusterIPsOf(service *Service) []netip.Addr {
	if service == nil {
		return nil
	}
	return service.ClusterIPs
}
