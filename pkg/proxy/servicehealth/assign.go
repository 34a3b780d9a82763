//go:build linux

package servicehealth

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Addresses are where the health checks of one family are answered: where the node serves node ports. The zero value
// is nowhere.
type Addresses struct {
	// All: on every address of the node, whatever addresses there are.
	All bool
	// Addrs: without All, only on these.
	Addrs []netip.Addr
}

// listenOn returns the addresses to bind. An IPv6 link-local address is left out: it is meaningless without its
// interface, and a load balancer could not ask there.
func (a Addresses) listenOn(family model.Family) []netip.Addr {
	switch {
	case a.All && family == model.IPv4:
		return []netip.Addr{netip.IPv4Unspecified()}
	case a.All:
		return []netip.Addr{netip.IPv6Unspecified()}
	}
	return slices.DeleteFunc(slices.Clone(a.Addrs), func(addr netip.Addr) bool {
		return addr.Is6() && addr.IsLinkLocalUnicast()
	})
}

// assign decides what is answered where. The API server gives each port to one Service only; if two still have the same
// one, the lexically smaller name keeps it, and every other one is an error.
func assign(checks map[model.ObjectName]selection.HealthCheck, addresses map[model.Family]Addresses) (map[netip.AddrPort]answer, []error) {
	assigned := map[netip.AddrPort]answer{}
	var refused []error
	names := slices.SortedFunc(maps.Keys(checks), model.ObjectName.Compare)
	for _, family := range model.Families {
		addrs := addresses[family].listenOn(family)
		if len(addrs) == 0 {
			continue
		}
		owners := map[uint16]model.ObjectName{}
		for _, name := range names {
			port := checks[name].Port
			endpoints, ok := checks[name].Endpoints[family]
			if !ok {
				continue
			}
			if owner, taken := owners[port]; taken {
				refused = append(refused, &Failure{
					Service: name, Err: fmt.Errorf("over %s: port %d is the healthCheckNodePort of Service %s", family, port, owner),
				})
				continue
			}
			owners[port] = name
			for _, addr := range addrs {
				assigned[netip.AddrPortFrom(addr, port)] = answer{service: name, endpoints: endpoints}
			}
		}
	}
	return assigned, refused
}
