package selection

import (
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Shares say where the plans in force send this node's new connections, over all Service ports whose load is bounded.
// Each family of a port counts separately.
type Shares struct {
	// Ports is the number of such ports.
	Ports int
	// BySource is how many of the ports were planned with each demand.
	BySource [balance.Sources]int
	// sent is the sum over the ports of what goes to the endpoints that a key matches, of sharesOne each.
	sent [len(sharedKeys) + 1]int
}

// fullShare is all of one port's connections.
const fullShare = 1 << 20

// sharedKeys are the keys that Ratios counts separately. Users may write any number of others.
var sharedKeys = [...]policy.Key{policy.Hostname, policy.Zone, policy.Region, policy.AnyNode}

// OtherKeys is what Ratios calls all other keys.
const OtherKeys = "other"

// Ratios returns, by key, the part of this node's new connections that goes to the endpoints that the key matches and
// no earlier key does: the mean over the ports; empty without ports.
func (s Shares) Ratios() map[string]float64 {
	ratios := map[string]float64{}
	if s.Ports == 0 {
		return ratios
	}
	for i, sent := range s.sent {
		name := OtherKeys
		if i < len(sharedKeys) {
			name = string(sharedKeys[i])
		}
		ratios[name] = float64(sent) / fullShare / float64(s.Ports)
	}
	return ratios
}

// Add adds the ports of a Service a number of times: 1, or -1 to take them out.
func (s *Shares) Add(plans Plans, times int) {
	for _, part := range plans {
		s.add(part, times)
	}
}

func (s *Shares) add(part *planInput, times int) {
	if part.sent == nil {
		return // it has no endpoints here
	}
	s.Ports += times
	s.BySource[part.source] += times
	for k, sent := range part.sent {
		at := 0
		for at < len(sharedKeys) && sharedKeys[at] != part.endpointClasses.Keys()[k] {
			at++
		}
		s.sent[at] += times * int(sent)
	}
}
