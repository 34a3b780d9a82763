package xds

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// service is the retained part of the decisions about a Service: its TCP ports, by number.
type service []port

// port is one TCP port of a Service.
type port struct {
	number uint16
	// localities are the LocalityLbEndpoints of the port's assignment, as they are sent: four megabytes for 10,000
	// Services with twelve endpoints each.
	localities string
	// sum is the hash of localities. A stream retains it instead of the text: the cost of a stream does not depend on the
	// number of endpoints, or on how often they change.
	sum uint64
}

// seed is specific to this process: no one else can construct two texts with the same sum.
var seed = maphash.MakeSeed()

func newPort(number uint16, localities []locality) port {
	var m message
	for i := range localities {
		m = m.nested(2, localities[i].write)
	}
	return port{number: number, localities: string(m), sum: maphash.Bytes(seed, m)}
}

// locality is a set of endpoints of one zone and one weight, in one tier. Clients spread connections evenly over its
// endpoints.
type locality struct {
	priority int
	zone     string
	// slots is the number of slots of each endpoint in the kernel's table. isSplit reports whether other endpoints of the
	// zone have a different number.
	slots     uint32
	isSplit   bool
	endpoints []netip.AddrPort
}

// newService returns the part of the decisions about a Service that is retained. An assignment has one family: the
// Service's first.
func newService(decisions []selection.Decision) service {
	var all service
	for i := range decisions {
		decision := &decisions[i]
		if decision.ForAddresses || decision.Port.Protocol != model.TCP || decision.Family != firstFamily(decisions) {
			continue
		}
		all = append(all, newPort(decision.Port.Port, localitiesOf(decision.Tiers())))
	}
	slices.SortFunc(all, func(a, b port) int { return cmp.Compare(a.number, b.number) })
	return all
}

// firstFamily returns the family of the Service's first address. A headless Service has no address; for it, firstFamily
// returns the first family in which it has endpoints.
func firstFamily(decisions []selection.Decision) model.Family {
	first := &decisions[0]
	if len(first.Service.ClusterIPs) > 0 {
		family := model.FamilyOf(first.Service.ClusterIPs[0])
		if slices.ContainsFunc(decisions, func(d selection.Decision) bool { return d.Family == family }) {
			return family
		}
		return first.Family
	}
	for i := range decisions {
		if len(decisions[i].Endpoints) > 0 {
			return decisions[i].Family
		}
	}
	return first.Family
}

// localitiesOf divides tiers by zone. Clients spread connections evenly within a locality, so endpoints with different
// numbers of slots have separate localities: then each endpoint's share is the same as in the kernel.
func localitiesOf(tiers []selection.Tier) []locality {
	var all []locality
	for priority, tier := range tiers {
		first := len(all)
		for i := range tier.Endpoints {
			endpoint, slots := &tier.Endpoints[i], uint32(1)
			if tier.Slots != nil {
				slots = uint32(tier.Slots[i])
			}
			index := slices.IndexFunc(all[first:], func(l locality) bool { return l.zone == endpoint.Zone && l.slots == slots })
			if index < 0 {
				index = len(all) - first
				all = append(all, locality{priority: priority, zone: endpoint.Zone, slots: slots})
			}
			match := &all[first+index]
			match.endpoints = append(match.endpoints, endpoint.Addr)
		}
		slices.SortFunc(all[first:], func(a, b locality) int {
			return cmp.Or(cmp.Compare(a.zone, b.zone), cmp.Compare(a.slots, b.slots))
		})
		for i := first + 1; i < len(all); i++ {
			if all[i].zone == all[i-1].zone {
				all[i].isSplit, all[i-1].isSplit = true, true
			}
		}
	}
	return all
}

// subZone returns a name that distinguishes localities of one zone.
func (l *locality) subZone() string {
	if !l.isSplit {
		return ""
	}
	return "weight-" + strconv.FormatUint(uint64(l.slots), 10)
}

// port returns a port by its number, and whether it exists.
func (s service) port(number uint16) (port, bool) {
	i, found := slices.BinarySearchFunc(s, number, func(p port, number uint16) int { return cmp.Compare(p.number, number) })
	if !found {
		return port{}, false
	}
	return s[i], true
}
