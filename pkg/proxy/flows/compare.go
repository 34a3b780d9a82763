package flows

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// isServed reports whether an endpoint may answer flows. When the first one may, there can be flows without
// translation: their clients have been sending since before there was a frontend.
func isServed(flows selection.Flows) bool { return len(flows.Inside)+len(flows.Outside) > 0 }

// comparisons are the lists that were compared already, by where they are in memory: the frontends of a port share
// their lists, and those may be long.
type comparisons struct {
	endpoints map[[2]*netip.AddrPort]bool
	sources   map[[2]*netip.Prefix]bool
}

// includes reports whether every endpoint that could answer flows still can, whether all endpoints are still there, and
// whether the clients are the same.
func (c comparisons) includes(now, old selection.Flows) bool {
	return c.includesAll(now.Inside, old.Inside) && c.includesAll(now.Outside, old.Outside) &&
		c.includesAll(now.Endpoints, old.Endpoints) && c.sameSources(now.Sources, old.Sources)
}

// sameSources reports whether as many clients as before may dial. Looking at the flows when more clients may dial does
// no harm.
func (c comparisons) sameSources(now, old []netip.Prefix) bool {
	if len(now) == 0 || len(now) != len(old) {
		return len(now) == 0
	}
	lists := [2]*netip.Prefix{&now[0], &old[0]}
	result, known := c.sources[lists]
	if !known {
		result = slices.Equal(now, old)
		c.sources[lists] = result
	}
	return result
}

func (c comparisons) includesAll(now, old []netip.AddrPort) bool {
	if len(now) == 0 || len(old) == 0 {
		return len(old) == 0
	}
	lists := [2]*netip.AddrPort{&now[0], &old[0]}
	result, known := c.endpoints[lists]
	if !known {
		result = containsAll(now, old)
		c.endpoints[lists] = result
	}
	return result
}

func containsAll(now, old []netip.AddrPort) bool {
	if slices.Equal(now, old) {
		return true
	}
	there := make(map[netip.AddrPort]bool, len(now))
	for _, endpoint := range now {
		there[endpoint] = true
	}
	return !slices.ContainsFunc(old, func(endpoint netip.AddrPort) bool { return !there[endpoint] })
}
