package balance

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Phase is which endpoints a node uses: those that still serve while terminating are better than none (KEP-1669), and
// never used beside ready ones.
type Phase uint8

// The phases.
const (
	Ready Phase = iota
	Terminating
)

// phases is how many there are. An endpoint that is in none is never used.
const phases = 2

// Places are a Service port's endpoints as one list of topology keys sees them: usable endpoints with the same values
// of all keys, and of the same phase, are a place. They stay as they are until the endpoints change, or the labels of the nodes that
// host them.
type Places struct {
	keys []policy.Key
	// of is the place of each endpoint, in the given order; nowhere if it is not usable.
	of []int32
	// count is how many endpoints a place has, and phase which.
	count []uint64
	phase []Phase
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
		Phase
	}
	index := make(map[place]int32, min(len(endpoints), 16))
	for i := range endpoints {
		phase, usable := phaseOf(&endpoints[i])
		if !usable {
			p.of[i] = nowhere
			continue
		}
		at, known := index[place{tuples[i], phase}]
		if !known {
			at = int32(len(p.count))
			index[place{tuples[i], phase}] = at
			p.count, p.phase = append(p.count, 0), append(p.phase, phase)
			p.groups = append(p.groups, tuples[i][:len(keys)]...)
		}
		p.of[i] = at
		p.count[at]++
	}
	return p
}

// read numbers the groups, and returns those of each endpoint.
func (p *Places) read(endpoints []model.PortEndpoint, valueOf ValueOf) []tuple {
	tuples := make([]tuple, len(endpoints))
	for k, key := range p.keys {
		numbers := map[string]int32{}
		for i := range endpoints {
			tuples[i][k] = none
			if _, usable := phaseOf(&endpoints[i]); !usable {
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

// phaseOf returns when an endpoint may be used, and whether it may at all.
func phaseOf(endpoint *model.PortEndpoint) (phase Phase, usable bool) {
	switch {
	case endpoint.Ready:
		return Ready, true
	case endpoint.Serving && endpoint.Terminating:
		return Terminating, true
	}
	return 0, false
}
