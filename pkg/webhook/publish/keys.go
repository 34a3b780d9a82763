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
// whoever may edit a Service chooses keys: so each can come once a day, and topologyslice.MaxKeys bounds how many.
const keyLinger = 24 * time.Hour

// keyring chooses the keys to publish. The zero value has none.
type keyring struct {
	// lastUsed is when a key was last seen in use.
	lastUsed map[policy.Key]time.Time
}

// choose returns the keys to publish now, sorted, and how many found no place: first those that always are, then those
// that some node carries, then others. Keys that EndpointSlices answer themselves, and `*`, are none.
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
	for key := range used {
		if key != policy.Hostname && key != policy.AnyNode {
			k.lastUsed[key] = now
		}
	}
	maps.DeleteFunc(k.lastUsed, func(_ policy.Key, at time.Time) bool { return now.Sub(at) > keyLinger })
	for _, key := range always {
		delete(k.lastUsed, key)
		keys = append(keys, string(key))
	}
	others := slices.SortedFunc(maps.Keys(k.lastUsed), func(a, b policy.Key) int {
		if carried[string(a)] != carried[string(b)] {
			if carried[string(a)] {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	room := topologyslice.MaxKeys - len(keys)
	for _, key := range others[:min(room, len(others))] {
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys, max(len(others)-room, 0)
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
