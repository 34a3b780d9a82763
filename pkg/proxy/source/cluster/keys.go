package cluster

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// keySet is a set of node label keys.
type keySet map[policy.Key]bool

// hasAll reports whether all keys are in the set.
func (s keySet) hasAll(keys []policy.Key) bool {
	for _, key := range keys {
		if !s[key] {
			return false
		}
	}
	return true
}

// containsAll reports whether all of the keys are among others.
func containsAll(others, keys []policy.Key) bool {
	for _, key := range keys {
		if !slices.Contains(others, key) {
			return false
		}
	}
	return true
}

// isIn reports whether the other set has all keys of this one.
func (s keySet) isIn(other keySet) bool {
	for key := range s {
		if !other[key] {
			return false
		}
	}
	return true
}

// of returns the labels whose keys are in the set. They are never nil: a node without any of them is known nonetheless.
func (s keySet) of(labels map[string]string) map[string]string {
	kept := map[string]string{}
	for key := range s {
		if value, ok := labels[string(key)]; ok {
			kept[string(key)] = value
		}
	}
	return kept
}

// equal reports whether two nodes carry the same labels as far as their keys are in the set.
func (s keySet) equal(a, b *model.Node) bool { return maps.Equal(s.of(a.Labels), s.of(b.Labels)) }

// nodeKeys returns the keys of a Service for which other nodes must be known.
func nodeKeys(service *model.Service) []policy.Key {
	var keys []policy.Key
	for _, key := range service.Topology.Keys {
		if key.NeedsNode() {
			keys = append(keys, key)
		}
	}
	return keys
}

// keyUse counts how many Services, in force or held back, name each key of nodeKeys.
type keyUse struct {
	counts map[policy.Key]int
	// isOther: a key came into use or went out of use, and nobody followed yet.
	isOther bool
}

func (u *keyUse) add(keys []policy.Key) {
	for _, key := range keys {
		if u.counts[key]++; u.counts[key] == 1 {
			u.isOther = true
		}
	}
}

func (u *keyUse) remove(keys []policy.Key) {
	for _, key := range keys {
		if u.counts[key]--; u.counts[key] == 0 {
			delete(u.counts, key)
			u.isOther = true
		}
	}
}

// keys returns the keys in use.
func (u *keyUse) keys() keySet {
	keys := make(keySet, len(u.counts))
	for key := range u.counts {
		keys[key] = true
	}
	return keys
}
