package model

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
)

// Limits of the load that one Service can cause on every node, in a family: its ports times the endpoints of each, and
// the total number of ports in its EndpointSlices. The ports share the first limit equally. While one Service is
// decided, all others wait, so no user may create a Service that takes long.
const (
	MaxPortEndpoints = 32_768
	MaxSlicePorts    = 65_536
)

// JoinedSlices holds the EndpointSlices of a Service, prepared for looking up the endpoints of many ports.
type JoinedSlices struct {
	slices []*EndpointSlice
	// maxEndpoints is the maximum number of endpoints of a port.
	maxEndpoints int
	// byPort indexes the slices by their ports; nil if there are so few that a linear search is faster.
	byPort map[portKey][]slicePort
}

// portKey identifies a port in a slice.
type portKey struct {
	family   Family
	name     string
	protocol Protocol
}

type slicePort struct {
	slice  *EndpointSlice
	number uint16
}

// maxLinearPorts is the largest total of ports in a Service's slices that is searched without an index.
const maxLinearPorts = 32

// JoinSlices prepares the slices that name a Service. A slice with the label of headless Services serves only those.
// kube-proxy does not list it, nor does a proxy that serves no DNS.
func JoinSlices(service *Service, candidates []*EndpointSlice) JoinedSlices {
	isExcluded := func(slice *EndpointSlice) bool { return slice.IsHeadless && !service.IsHeadless }
	if slices.ContainsFunc(candidates, isExcluded) {
		candidates = slices.DeleteFunc(slices.Clone(candidates), isExcluded)
	}
	return join(candidates, len(service.Ports))
}

// join prepares the slices of a Service with numPorts ports.
func join(endpointSlices []*EndpointSlice, numPorts int) JoinedSlices {
	endpointSlices, total := LimitSlices(endpointSlices)
	joined := JoinedSlices{slices: endpointSlices, maxEndpoints: max(1, MaxPortEndpoints/max(1, numPorts))}
	if total <= maxLinearPorts {
		return joined
	}
	joined.byPort = make(map[portKey][]slicePort, total)
	for _, slice := range endpointSlices {
		for _, port := range slice.Ports {
			key := portKey{slice.Family, port.Name, port.Protocol}
			joined.byPort[key] = append(joined.byPort[key], slicePort{slice, port.Port})
		}
	}
	return joined
}

// LimitSlices returns the first slices of a Service that list at most MaxSlicePorts ports together, and the number of
// these ports.
func LimitSlices(endpointSlices []*EndpointSlice) (limited []*EndpointSlice, ports int) {
	for i, slice := range endpointSlices {
		if ports+len(slice.Ports) > MaxSlicePorts {
			return endpointSlices[:i], ports
		}
		ports += len(slice.Ports)
	}
	return endpointSlices, ports
}

// Endpoints returns the endpoints of one of the Service's ports in one family, sorted by address and port. If there are
// more than MaxPortEndpoints, it uses those of the first slices and returns how many it skipped.
//
// A slice's port belongs to the Service port with the same name and protocol. Several entries with the same address and
// port are one endpoint: a pod's address may be reused while the slice of its predecessor still lists it as
// terminating. The result does not depend on the order of slices, ports or entries.
func (j JoinedSlices) Endpoints(port ServicePort, family Family) (endpoints []PortEndpoint, skipped int) {
	count := 0
	for slice := range j.serving(port, family) {
		count += len(slice.Endpoints)
	}
	endpoints = make([]PortEndpoint, 0, min(count, j.maxEndpoints))
	for slice, number := range j.serving(port, family) {
		for i := range min(len(slice.Endpoints), j.maxEndpoints-len(endpoints)) {
			entry := &slice.Endpoints[i]
			endpoints = append(endpoints, PortEndpoint{Addr: netip.AddrPortFrom(entry.Addr, number), Endpoint: entry.Endpoint})
		}
	}
	return sortAndCompact(endpoints), max(0, count-j.maxEndpoints)
}

// Addresses returns the addresses of a family as endpoints with port 0, and how many it skipped. They are the records
// of a headless Service's name.
func (j JoinedSlices) Addresses(family Family) (endpoints []PortEndpoint, skipped int) {
	count := 0
	for _, slice := range j.slices {
		if slice.Family != family {
			continue
		}
		count += len(slice.Endpoints)
		for i := range min(len(slice.Endpoints), j.maxEndpoints-len(endpoints)) {
			entry := &slice.Endpoints[i]
			endpoints = append(endpoints, PortEndpoint{Addr: netip.AddrPortFrom(entry.Addr, 0), Endpoint: entry.Endpoint})
		}
	}
	return sortAndCompact(endpoints), max(0, count-j.maxEndpoints)
}

// Hostnames returns the names of endpoints below the name of a headless Service, by address. If an address has several
// names, the alphabetically first is returned.
func (j JoinedSlices) Hostnames() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, slice := range j.slices {
		for i, name := range slice.Hostnames {
			addr := slice.Endpoints[i].Addr
			if current, known := names[addr]; name != "" && (!known || name < current) {
				names[addr] = name
			}
		}
	}
	return names
}

// sortAndCompact sorts endpoints by compareEntries, and keeps the first of those with the same address and port.
func sortAndCompact(endpoints []PortEndpoint) []PortEndpoint {
	slices.SortFunc(endpoints, compareEntries)
	return slices.CompactFunc(endpoints, func(a, b PortEndpoint) bool { return a.Addr == b.Addr })
}

// serving yields the slices whose endpoints serve a port, with the port number in each slice.
func (j JoinedSlices) serving(port ServicePort, family Family) iter.Seq2[*EndpointSlice, uint16] {
	return func(yield func(*EndpointSlice, uint16) bool) {
		if j.byPort != nil {
			for _, match := range j.byPort[portKey{family, port.Name, port.Protocol}] {
				if !yield(match.slice, match.number) {
					return
				}
			}
			return
		}
		for _, slice := range j.slices {
			for _, listed := range slice.Ports {
				matches := slice.Family == family && listed.Name == port.Name && listed.Protocol == port.Protocol
				if matches && !yield(slice, listed.Port) {
					return
				}
			}
		}
	}
}

// compareEntries orders endpoints by address and port, and entries with the same address and port by precedence: first
// one that is not terminating, as in kube-proxy since 1.36, then one that is ready, then one that is serving. Beyond
// that kube-proxy's choice is arbitrary; here the entry's content decides, so that all nodes and all runs agree.
func compareEntries(a, b PortEndpoint) int {
	if order := a.Addr.Compare(b.Addr); order != 0 {
		return order
	}
	return cmp.Or(
		compareBool(a.Terminating, b.Terminating),
		compareBool(b.Ready, a.Ready),
		compareBool(b.Serving, a.Serving),
		cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Zone, b.Zone),
		slices.Compare(a.HintNodes, b.HintNodes),
		slices.Compare(a.HintZones, b.HintZones),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
