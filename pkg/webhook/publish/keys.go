package publish

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

// always are published whether or not a Service names them: where nodes are, and what they ask.
var always = append([]policy.Key{corev1.LabelTopologyRegion, policy.Zone}, policy.DemandLabels[:]...)

// keyLinger is how long a key is published after it went out of use. A key that comes or goes changes every slice, and
// whoever may edit a Service chooses keys. So each comes once a day at most, and one that has a place keeps it, but for a
// key that nodes carry: no tenant chooses those.
const keyLinger = 24 * time.Hour

// keyring chooses the keys to publish. The zero value has none.
type keyring struct {
	// lastUsed is when a published key was last seen in use. There are never more than topologyslice.MaxKeys.
	lastUsed map[policy.Key]time.Time
}

// choose returns the keys to publish now, sorted, and how many in use found no place: first those that always are, then
// those that some node carries, and of either sort first those that are published. Keys that EndpointSlices answer
// themselves, and `*`, are none.
//
// published are those that slices have already: a new leader keeps them as though they had just gone out of use.
func (k *keyring) choose(
	now time.Time, used map[policy.Key]bool, published []string, carried map[string]bool,
) (keys []string, leftOut int) {
	if k.lastUsed == nil {
		k.lastUsed = map[policy.Key]time.Time{}
		for _, key := range published {
			k.lastUsed[policy.Key(key)] = now
		}
	}
	maps.DeleteFunc(k.lastUsed, func(key policy.Key, at time.Time) bool { return !used[key] && now.Sub(at) > keyLinger })
	for _, key := range always {
		delete(k.lastUsed, key)
		keys = append(keys, string(key))
	}
	before := k.lastUsed
	k.lastUsed = map[policy.Key]time.Time{}
	for _, key := range wanted(before, used, carried) {
		switch {
		case len(keys) < topologyslice.MaxKeys:
			keys = append(keys, string(key))
			if k.lastUsed[key] = before[key]; used[key] {
				k.lastUsed[key] = now
			}
		case used[key]:
			leftOut++
		}
	}
	slices.Sort(keys)
	return keys, leftOut
}

// wanted are the keys that want a place, beyond those that always have one, in the order in which they get one.
func wanted(published map[policy.Key]time.Time, used map[policy.Key]bool, carried map[string]bool) []policy.Key {
	all := slices.Collect(maps.Keys(published))
	for key := range used {
		_, isPublished := published[key]
		if !isPublished && key != policy.Hostname && key != policy.AnyNode && !slices.Contains(always, key) {
			all = append(all, key)
		}
	}
	rank := func(key policy.Key) int {
		rank := 0
		if !carried[string(key)] {
			rank += 2
		}
		if _, isPublished := published[key]; !isPublished {
			rank++
		}
		return rank
	}
	slices.SortFunc(all, func(a, b policy.Key) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	return all
}

// describe returns what is published of a node: those of its labels that are.
func describe(labels map[string]string, keys []string) map[string]string {
	var described map[string]string
	for _, key := range keys {
		if value, has := labels[key]; has {
			if described == nil {
				described = map[string]string{}
			}
			described[key] = value
		}
	}
	return described
}
