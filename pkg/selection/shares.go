package selection

import (
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Shares sums up where the applied plans send this node's new connections, over all Service ports with a load bound.
// Each family of a port counts separately.
type Shares struct {
	// Ports is the number of these ports.
	Ports int
	// BySource is the number of these ports that were planned with demand from each source.
	BySource [balance.NumSources]int
	// sentByKey is, for each key, the sum over the ports of the connections to the endpoints that it matches, in units of
	// 1/fullShare.
	sentByKey [len(sharedKeys) + 1]int
}

// fullShare is all connections of one port.
const fullShare = 1 << 20

// sharedKeys are the keys that Ratios counts separately. Users may write any number of others.
var sharedKeys = [...]policy.Key{policy.Hostname, policy.Zone, policy.Region, policy.AnyNode}

// OtherKeys is the name of all other keys in Ratios.
const OtherKeys = "other"

// Ratios returns, by key, the fraction of this node's new connections to the endpoints that the key matches and no
// earlier key does. It is the mean over the ports, and empty without ports.
func (s Shares) Ratios() map[string]float64 {
	ratios := map[string]float64{}
	if s.Ports == 0 {
		return ratios
	}
	for i, sent := range s.sentByKey {
		name := OtherKeys
		if i < len(sharedKeys) {
			name = string(sharedKeys[i])
		}
		ratios[name] = float64(sent) / fullShare / float64(s.Ports)
	}
	return ratios
}

// Add adds the ports of a Service a number of times. A number of -1 removes them.
func (s *Shares) Add(plans Plans, times int) {
	for _, record := range plans {
		s.add(record, times)
	}
}

func (s *Shares) add(record *planRecord, times int) {
	if record.sentByKey == nil {
		return // no endpoints here
	}
	s.Ports += times
	s.BySource[record.source] += times
	for k, sent := range record.sentByKey {
		index := 0
		for index < len(sharedKeys) && sharedKeys[index] != record.endpointClasses.Keys()[k] {
			index++
		}
		s.sentByKey[index] += times * int(sent)
	}
}
