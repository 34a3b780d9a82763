package model

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
)

// Endpoints joins a Service's EndpointSlices into the endpoints of one of its ports in one family, sorted by address
// and port. All slices must belong to the Service.
//
// A slice's port belongs to the Service port of the same name and protocol. An address and port that several entries
// claim is one endpoint: a pod's address may be used again while the slice of its predecessor still lists it as
// terminating. The result does not depend on the order of slices, ports or entries.
func Endpoints(port ServicePort, family Family, endpointSlices []*EndpointSlice) []PortEndpoint {
	count := 0
	for slice := range serving(port, family, endpointSlices) {
		count += len(slice.Endpoints)
	}
	endpoints := make([]PortEndpoint, 0, count)
	for slice, number := range serving(port, family, endpointSlices) {
		for i := range slice.Endpoints {
			entry := &slice.Endpoints[i]
			endpoints = append(endpoints, PortEndpoint{Addr: netip.AddrPortFrom(entry.Addr, number), Endpoint: entry.Endpoint})
		}
	}
	slices.SortFunc(endpoints, compareEntries)
	return slices.CompactFunc(endpoints, func(a, b PortEndpoint) bool { return a.Addr == b.Addr })
}

// serving yields the slices whose endpoints serve a port, each with the port's number there.
func serving(port ServicePort, family Family, endpointSlices []*EndpointSlice) iter.Seq2[*EndpointSlice, uint16] {
	return func(yield func(*EndpointSlice, uint16) bool) {
		for _, slice := range endpointSlices {
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
// leaves the rest to chance; here what the entry says decides, so that all nodes and all runs agree.
func compareEntries(a, b PortEndpoint) int {
	if order := a.Addr.Compare(b.Addr); order != 0 {
		return order
	}
	return cmp.Or(
		falseFirst(a.Terminating, b.Terminating),
		falseFirst(b.Ready, a.Ready),
		falseFirst(b.Serving, a.Serving),
		cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Zone, b.Zone),
		slices.Compare(a.HintNodes, b.HintNodes),
		slices.Compare(a.HintZones, b.HintZones),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
