package publish

import (
	"cmp"
	"maps"
	"math"
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
// key that nodes carry, whose Namespace has fewer places: no tenant chooses what nodes carry.
const keyLinger = 24 * time.Hour

// usage says in which Namespaces each key is used; "" is the configuration.
type usage map[policy.Key]map[string]bool

func (u usage) add(key policy.Key, namespace string) {
	if u[key] == nil {
		u[key] = map[string]bool{}
	}
	u[key][namespace] = true
}

// keyring chooses the keys to publish. The zero value has none.
type keyring struct {
	// published are the keys that have a place. There are never more than topologyslice.MaxKeys.
	published map[policy.Key]tenure
}

// tenure is when a published key was last seen in use, and where.
type tenure struct {
	at time.Time
	by map[string]bool
}

// choose returns the keys to publish now, sorted, and how many in use found no place: first those that always are, then
// those that some node carries, and at last others. Keys that EndpointSlices answer themselves, and `*`, are none.
//
// published are those that slices have already: a new leader keeps them as though they had just gone out of use.
func (k *keyring) choose(now time.Time, used usage, published []string, carried map[string]bool) (keys []string, leftOut int) {
	if k.published == nil {
		k.published = map[policy.Key]tenure{}
		for _, key := range published {
			k.published[policy.Key(key)] = tenure{at: now}
		}
	}
	maps.DeleteFunc(k.published, func(key policy.Key, of tenure) bool { return used[key] == nil && now.Sub(of.at) > keyLinger })
	for _, key := range always {
		delete(k.published, key)
		keys = append(keys, string(key))
	}
	before := k.published
	k.published = map[policy.Key]tenure{}
	for _, key := range wanted(before, used, carried) {
		switch {
		case len(keys) < topologyslice.MaxKeys:
			keys = append(keys, string(key))
			if k.published[key] = before[key]; used[key] != nil {
				k.published[key] = tenure{now, used[key]}
			}
		case used[key] != nil:
			leftOut++
		}
	}
	slices.Sort(keys)
	return keys, leftOut
}

// wanted are the keys that want a place, beyond those that always have one, in the order in which they get one: those that
// nodes carry in turns, one of each Namespace after the other, and then the rest. Among equals those that are published
// come first.
func wanted(published map[policy.Key]tenure, used usage, carried map[string]bool) []policy.Key {
	all := slices.Collect(maps.Keys(published))
	for key := range used {
		_, isPublished := published[key]
		if !isPublished && key != policy.Hostname && key != policy.AnyNode && !slices.Contains(always, key) {
			all = append(all, key)
		}
	}
	newcomer := func(key policy.Key) int {
		if _, isPublished := published[key]; isPublished {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b policy.Key) int { return cmp.Or(cmp.Compare(newcomer(a), newcomer(b)), cmp.Compare(a, b)) })
	turns, taken := map[policy.Key]int{}, map[string]int{}
	for _, key := range all {
		turns[key] = math.MaxInt // nobody carries it
		if !carried[string(key)] {
			continue
		}
		by := used[key]
		if by == nil {
			by = published[key].by
		}
		if len(by) == 0 { // of an earlier leader
			by = map[string]bool{"": true}
		}
		for namespace := range by {
			turns[key] = min(turns[key], taken[namespace])
			taken[namespace]++
		}
	}
	slices.SortStableFunc(all, func(a, b policy.Key) int { return cmp.Compare(turns[a], turns[b]) })
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
