package balance

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Places are a Service port's endpoints as one list of topology keys sees them: usable endpoints with the same values
// of all keys, and of the same rank, are a place. They stay as they are until the endpoints change, or the labels of
// the nodes that host them.
type Places struct {
	keys []policy.Key
	// of is the place of each endpoint, in the given order; nowhere if it is not usable.
	of []int32
	// count is how many endpoints a place has, and rank which.
	count []uint64
	rank  []model.Rank
	// groups are the groups of each place, key by key; none where a value is unknown. The groups of all keys are numbered
	// in one row: those of a key from first on.
	groups []int32
	first  []int32
	values []string // by group
}

// none is no group, and nowhere no place.
const (
	none    = -1
	nowhere = -1
)

// ValueOf returns an endpoint's value of a key, and whether it is known. It is asked for the hostname too, and not for
// policy.AnyNode.
type ValueOf func(endpoint *model.PortEndpoint, key policy.Key) (value string, known bool)

// NewPlaces returns the places of some endpoints, no two of which have the same address and port.
func NewPlaces(keys []policy.Key, endpoints []model.PortEndpoint, valueOf ValueOf) *Places {
	p := &Places{keys: keys, of: make([]int32, len(endpoints)), first: make([]int32, len(keys)+1)}
	tuples := p.read(endpoints, valueOf)
	type place struct {
		tuple
		model.Rank
	}
	index := make(map[place]int32, min(len(endpoints), 16))
	for i := range endpoints {
		rank, usable := endpoints[i].Rank()
		if !usable {
			p.of[i] = nowhere
			continue
		}
		at, known := index[place{tuples[i], rank}]
		if !known {
			at = int32(len(p.count))
			index[place{tuples[i], rank}] = at
			p.count, p.rank = append(p.count, 0), append(p.rank, rank)
			p.groups = append(p.groups, tuples[i][:len(keys)]...)
		}
		p.of[i] = at
		p.count[at]++
	}
	return p
}

// Keys are the keys that it was made with.
func (p *Places) Keys() []policy.Key { return p.keys }

// read numbers the groups, and returns those of each endpoint.
func (p *Places) read(endpoints []model.PortEndpoint, valueOf ValueOf) []tuple {
	tuples := make([]tuple, len(endpoints))
	for k, key := range p.keys {
		numbers := map[string]int32{}
		for i := range endpoints {
			tuples[i][k] = none
			if endpoints[i].Phase() == model.PhaseNever {
				continue
			}
			value, known := "", true
			if key != policy.AnyNode {
				value, known = valueOf(&endpoints[i], key)
			}
			if !known {
				continue
			}
			number, seen := numbers[value]
			if !seen {
				number = int32(len(p.values))
				numbers[value] = number
				p.values = append(p.values, value)
			}
			tuples[i][k] = number
		}
		p.first[k+1] = int32(len(p.values))
	}
	return tuples
}

// group returns the group of a key with a value; none if no endpoint is in it.
func (p *Places) group(k int, value string) int32 {
	for g := p.first[k]; g < p.first[k+1]; g++ {
		if p.values[g] == value {
			return g
		}
	}
	return none
}
