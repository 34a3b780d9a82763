package balance

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// EndpointClasses are a Service port's endpoints, classified by a list of topology keys: usable endpoints with the same
// values of all keys and the same rank form a class. They are valid until the endpoints change, or the labels of the
// nodes that host them.
type EndpointClasses struct {
	keys []policy.Key
	// classOf is the class of each endpoint in the given order, or noClass if it is not usable.
	classOf []int32
	// counts are the numbers of endpoints by class, and ranks their ranks.
	counts []uint64
	ranks  []model.Rank
	// groups are the groups of each class, key by key; noGroup where a value is unknown. Groups are numbered over all
	// keys: those of key k are firstGroup[k] to firstGroup[k+1]-1.
	groups     []int32
	firstGroup []int32
	values     []string // by group
}

// noGroup means no group, and noClass means no class.
const (
	noGroup = -1
	noClass = -1
)

// ValueOf returns an endpoint's value of a key, and whether it is known. It is called for the hostname too, but not for
// policy.AnyNode.
type ValueOf func(endpoint *model.PortEndpoint, key policy.Key) (value string, known bool)

// maxLinearEndpoints is the number of endpoints up to which searching all classes and values is faster than building a
// map.
const maxLinearEndpoints = 32

// NewEndpointClasses returns the classes of some endpoints, no two of which have the same address and port.
func NewEndpointClasses(keys []policy.Key, endpoints []model.PortEndpoint, valueOf ValueOf) *EndpointClasses {
	c := &EndpointClasses{keys: keys, classOf: make([]int32, len(endpoints)), firstGroup: make([]int32, len(keys)+1)}
	groups := c.numberGroups(endpoints, valueOf)
	find := c.finder(len(endpoints))
	for i := range endpoints {
		rank, usable := endpoints[i].Rank()
		if !usable {
			c.classOf[i] = noClass
			continue
		}
		endpointGroups := groups[i*len(keys) : (i+1)*len(keys)]
		class := find(endpointGroups, rank)
		if int(class) == len(c.counts) {
			c.counts, c.ranks = append(c.counts, 0), append(c.ranks, rank)
			c.groups = append(c.groups, endpointGroups...)
		}
		c.classOf[i] = class
		c.counts[class]++
	}
	return c
}

// finder returns a function that finds the class of an endpoint by its groups and rank, or the number of a new class.
// numEndpoints determines whether the function searches linearly or in a map.
func (c *EndpointClasses) finder(numEndpoints int) func(groups []int32, rank model.Rank) int32 {
	if numEndpoints <= maxLinearEndpoints {
		return func(groups []int32, rank model.Rank) int32 {
			for n := range c.counts {
				if c.ranks[n] == rank && slices.Equal(c.groups[n*len(c.keys):(n+1)*len(c.keys)], groups) {
					return int32(n)
				}
			}
			return int32(len(c.counts))
		}
	}
	type class struct {
		tuple
		model.Rank
	}
	index := map[class]int32{}
	return func(groups []int32, rank model.Rank) int32 {
		key := class{Rank: rank}
		copy(key.tuple[:], groups)
		n, known := index[key]
		if !known {
			n = int32(len(c.counts))
			index[key] = n
		}
		return n
	}
}

// Keys returns the keys by which the endpoints are classified.
func (c *EndpointClasses) Keys() []policy.Key { return c.keys }

// numberGroups numbers the groups, and returns the groups of each endpoint, key by key.
func (c *EndpointClasses) numberGroups(endpoints []model.PortEndpoint, valueOf ValueOf) []int32 {
	groups := make([]int32, len(endpoints)*len(c.keys))
	for k, key := range c.keys {
		var groupByValue map[string]int32
		if len(endpoints) > maxLinearEndpoints {
			groupByValue = map[string]int32{}
		}
		c.firstGroup[k+1] = c.firstGroup[k]
		for i := range endpoints {
			group := &groups[i*len(c.keys)+k]
			*group = noGroup
			if endpoints[i].Phase() == model.PhaseNever {
				continue
			}
			value, known := "", true
			if key != policy.AnyNode {
				value, known = valueOf(&endpoints[i], key)
			}
			if known {
				*group = c.addGroup(k, value, groupByValue)
			}
		}
	}
	return groups
}

// addGroup returns the group of a key's value. A new value gets the next group. With many endpoints, groupByValue has
// the key's groups so far; otherwise it is nil.
func (c *EndpointClasses) addGroup(k int, value string, groupByValue map[string]int32) int32 {
	group, seen := int32(0), false
	if groupByValue != nil {
		group, seen = groupByValue[value]
	} else {
		group = c.group(k, value)
		seen = group != noGroup
	}
	if seen {
		return group
	}
	group = int32(len(c.values))
	c.values = append(c.values, value)
	c.firstGroup[k+1] = group + 1
	if groupByValue != nil {
		groupByValue[value] = group
	}
	return group
}

// group returns the group of a key's value, or noGroup if no endpoint is in it.
func (c *EndpointClasses) group(k int, value string) int32 {
	for g := c.firstGroup[k]; g < c.firstGroup[k+1]; g++ {
		if c.values[g] == value {
			return g
		}
	}
	return noGroup
}
