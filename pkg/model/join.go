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
	return Join(endpointSlices).Endpoints(port, family)
}

// Joined are the EndpointSlices of a Service, ready to be asked for the endpoints of many ports.
type Joined struct {
	slices []*EndpointSlice
	// byPort are the slices by what they offer; nil if they offer so little that to look through all is faster.
	byPort map[offer][]offered
}

// offer is what a slice says that it serves.
type offer struct {
	family   Family
	name     string
	protocol Protocol
}

type offered struct {
	slice  *EndpointSlice
	number uint16
}

// manyOffers is how many ports a Service's slices have in sum before they are indexed.
const manyOffers = 32

// Join makes a Service's slices ready.
func Join(endpointSlices []*EndpointSlice) Joined {
	joined, offers := Joined{slices: endpointSlices}, 0
	for _, slice := range endpointSlices {
		offers += len(slice.Ports)
	}
	if offers <= manyOffers {
		return joined
	}
	joined.byPort = make(map[offer][]offered, offers)
	for _, slice := range endpointSlices {
		for _, port := range slice.Ports {
			key := offer{slice.Family, port.Name, port.Protocol}
			joined.byPort[key] = append(joined.byPort[key], offered{slice, port.Port})
		}
	}
	return joined
}

// Endpoints is the function of that name, for one port after the other.
func (j Joined) Endpoints(port ServicePort, family Family) []PortEndpoint {
	count := 0
	for slice := range j.serving(port, family) {
		count += len(slice.Endpoints)
	}
	endpoints := make([]PortEndpoint, 0, count)
	for slice, number := range j.serving(port, family) {
		for i := range slice.Endpoints {
			entry := &slice.Endpoints[i]
			endpoints = append(endpoints, PortEndpoint{Addr: netip.AddrPortFrom(entry.Addr, number), Endpoint: entry.Endpoint})
		}
	}
	slices.SortFunc(endpoints, compareEntries)
	return slices.CompactFunc(endpoints, func(a, b PortEndpoint) bool { return a.Addr == b.Addr })
}

// serving yields the slices whose endpoints serve a port, each with the port's number there.
func (j Joined) serving(port ServicePort, family Family) iter.Seq2[*EndpointSlice, uint16] {
	return func(yield func(*EndpointSlice, uint16) bool) {
		if j.byPort != nil {
			for _, found := range j.byPort[offer{family, port.Name, port.Protocol}] {
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
