package model

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
)

// The load that one Service can put on every node, in a family: its ports times the endpoints of each, and the total
// number of ports that its EndpointSlices list. Each port has its share of the first. All Services wait while one is
// decided, so no user may write a Service that takes long.
const (
	MaxPortEndpoints = 32_768
	MaxOffers        = 65_536
)

// Joined are the EndpointSlices of a Service, ready to be asked for the endpoints of many ports.
type Joined struct {
	slices []*EndpointSlice
	// largest is how many endpoints a port can have.
	largest int
	// byPort are the slices by what they offer; nil if they offer so little that searching all is faster.
	byPort map[portKey][]slicePort
}

// portKey is what a slice says that it serves.
type portKey struct {
	family   Family
	name     string
	protocol Protocol
}

type slicePort struct {
	slice  *EndpointSlice
	number uint16
}

// maxLinearPorts is how many ports a Service's slices have in sum before they are indexed.
const maxLinearPorts = 32

// JoinSlices prepares the slices that name a Service. A slice with the label of headless Services serves only those:
// kube-proxy never sees it, and neither does a proxy that answers no DNS.
func JoinSlices(service *Service, named []*EndpointSlice) Joined {
	isOthers := func(slice *EndpointSlice) bool { return slice.IsHeadless && !service.IsHeadless }
	if slices.ContainsFunc(named, isOthers) {
		named = slices.DeleteFunc(slices.Clone(named), isOthers)
	}
	return join(named, len(service.Ports))
}

// join prepares the slices of a Service with some ports.
func join(endpointSlices []*EndpointSlice, ports int) Joined {
	endpointSlices, offers := TakeUpTo(endpointSlices)
	joined := Joined{slices: endpointSlices, largest: max(1, MaxPortEndpoints/max(1, ports))}
	if offers <= maxLinearPorts {
		return joined
	}
	joined.byPort = make(map[portKey][]slicePort, offers)
	for _, slice := range endpointSlices {
		for _, port := range slice.Ports {
			key := portKey{slice.Family, port.Name, port.Protocol}
			joined.byPort[key] = append(joined.byPort[key], slicePort{slice, port.Port})
		}
	}
	return joined
}

// TakeUpTo returns the first slices of a Service, as far as they list MaxOffers ports in sum, and how many they list.
func TakeUpTo(endpointSlices []*EndpointSlice) (taken []*EndpointSlice, offers int) {
	for i, slice := range endpointSlices {
		if offers+len(slice.Ports) > MaxOffers {
			return endpointSlices[:i], offers
		}
		offers += len(slice.Ports)
	}
	return endpointSlices, offers
}

// Endpoints returns the endpoints of one of the Service's ports in one family, sorted by address and port. If the Service
// has more than MaxPortEndpoints, it takes those of the first slices, and returns how many are left out.
//
// A slice's port belongs to the Service port of the same name and protocol. An address and port that several entries
// claim is one endpoint: a pod's address may be used again while the slice of its predecessor still lists it as
// terminating. The result does not depend on the order of slices, ports or entries.
func (j Joined) Endpoints(port ServicePort, family Family) (endpoints []PortEndpoint, skipped int) {
	count := 0
	for slice := range j.serving(port, family) {
		count += len(slice.Endpoints)
	}
	endpoints = make([]PortEndpoint, 0, min(count, j.largest))
	for slice, number := range j.serving(port, family) {
		for i := range min(len(slice.Endpoints), j.largest-len(endpoints)) {
			entry := &slice.Endpoints[i]
			endpoints = append(endpoints, PortEndpoint{Addr: netip.AddrPortFrom(entry.Addr, number), Endpoint: entry.Endpoint})
		}
	}
	return resolveConflict(endpoints), max(0, count-j.largest)
}

// Addresses returns the addresses of a family, whatever their ports, as endpoints with port 0, and how many are left out.
// They are what the name of a headless Service stands for.
func (j Joined) Addresses(family Family) (endpoints []PortEndpoint, skipped int) {
	count := 0
	for _, slice := range j.slices {
		if slice.Family != family {
			continue
		}
		count += len(slice.Endpoints)
		for i := range min(len(slice.Endpoints), j.largest-len(endpoints)) {
			entry := &slice.Endpoints[i]
			endpoints = append(endpoints, PortEndpoint{Addr: netip.AddrPortFrom(entry.Addr, 0), Endpoint: entry.Endpoint})
		}
	}
	return resolveConflict(endpoints), max(0, count-j.largest)
}

// Hostnames returns the names of endpoints below the name of a headless Service, by address. If an address has several
// names, it is the first one in the alphabet.
func (j Joined) Hostnames() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, slice := range j.slices {
		for i, name := range slice.Hostnames {
			addr := slice.Endpoints[i].Addr
			if before, known := names[addr]; name != "" && (!known || name < before) {
				names[addr] = name
			}
		}
	}
	return names
}

// resolveConflict sorts endpoints, and of several with the same address and port keeps the one to believe.
func resolveConflict(endpoints []PortEndpoint) []PortEndpoint {
	slices.SortFunc(endpoints, compareEntries)
	return slices.CompactFunc(endpoints, func(a, b PortEndpoint) bool { return a.Addr == b.Addr })
}

// serving yields the slices whose endpoints serve a port, each with the port's number there.
func (j Joined) serving(port ServicePort, family Family) iter.Seq2[*EndpointSlice, uint16] {
	return func(yield func(*EndpointSlice, uint16) bool) {
		if j.byPort != nil {
			for _, found := range j.byPort[portKey{family, port.Name, port.Protocol}] {
				if !yield(found.slice, found.number) {
					return
				}
			}
			return
		}
		for _, slice := range j.slices {
			for _, offered := range slice.Ports {
				matches := slice.Family == family && offered.Name == port.Name && offered.Protocol == port.Protocol
				if matches && !yield(slice, offered.Port) {
					return
				}
			}
		}
	}
}

// compareEntries orders endpoints by address and port, and those that claim the same by which to believe: first one
// that is not terminating, as kube-proxy does since 1.36, then one that is ready, then one that serves. kube-proxy
// leaves the rest to chance; here the entry's content decides, so that all nodes and all runs agree.
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
