package topologypublisher

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

// builtinKeys are published whether or not a Service names them: where nodes are, and their demand.
var builtinKeys = append([]policy.Key{corev1.LabelTopologyRegion, policy.Zone}, policy.DemandLabels[:]...)

// maxUserKeys is how many keys can be published beside those.
var maxUserKeys = topologyslice.MaxKeys - len(builtinKeys)

// keyLinger is how long a key is published after it went out of use.
const keyLinger = 24 * time.Hour

// Each change of the published keys writes every slice, and every proxy receives each. Everybody who may edit a Service
// chooses keys, so changes have a budget: changesAtOnce, and one more per refill. That is at most ten in any hour.
const (
	changeBurst = 5
	refill      = 12 * time.Minute
)

// namedKeys is how many keys a line of the log names.
const namedKeys = 10

// keyUsage are the keys in use. The value is true for those that the webhook's configuration or its own Namespace name: the
// administrator's.
type keyUsage map[policy.Key]bool

func (u keyUsage) add(key policy.Key, isAdministrators bool) { u[key] = u[key] || isAdministrators }

// keySet says which keys are published, and holds what that depends on besides their use.
type keySet struct {
	// states are the keys in use, and published ones until keyLinger after their use.
	states    map[policy.Key]keyState
	published map[policy.Key]bool
	// full is when the budget of changes is full again.
	full time.Time
	// logged are the waiting keys of the last line about them, and loggedAt is its time.
	logged   []policy.Key
	loggedAt time.Time
}

// keyState is since when a key is in use, and when it was last seen in use.
type keyState struct{ since, used time.Time }

// newKeySet is the keyring of a new leader. It keeps the keys that slices have already, as if they had just gone out
// of use, and may make one change at once: however often the leader changes, each makes at most one change beyond the
// budget. If nothing is published yet, the first publication takes all keys in use.
func newKeySet(now time.Time, published []string) *keySet {
	k := &keySet{states: map[policy.Key]keyState{}, published: map[policy.Key]bool{}}
	for _, key := range published {
		if countsAgainstQuota(policy.Key(key)) {
			k.states[policy.Key(key)], k.published[policy.Key(key)] = keyState{now, now}, true
		}
	}
	if len(published) > 0 {
		k.full = now.Add((changeBurst - 1) * refill)
	}
	return k
}

// countsAgainstQuota is false for the keys that are published anyway, and for those that EndpointSlices answer themselves.
func countsAgainstQuota(key policy.Key) bool {
	return key != policy.Hostname && key != policy.AnyNode && !slices.Contains(builtinKeys, key)
}

// keys are those to publish, sorted.
func (k *keySet) keys() []string {
	keys := make([]string, 0, topologyslice.MaxKeys)
	for _, key := range builtinKeys {
		keys = append(keys, string(key))
	}
	for key := range k.published {
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys
}

// choose chooses the keys to publish, after a look at which are used, and which of them some node carries. It returns
// the keys that are used and not published, the oldest first. All that may change becomes one change.
func (k *keySet) choose(now time.Time, used keyUsage, carried map[string]bool) (waiting []pendingKey) {
	for key := range used {
		if countsAgainstQuota(key) {
			of, isKnown := k.states[key]
			if !isKnown {
				of.since = now
			}
			k.states[key] = keyState{of.since, now}
		}
	}
	maps.DeleteFunc(k.states, func(key policy.Key, of keyState) bool {
		_, isUsed := used[key]
		return !isUsed && (!k.published[key] || now.Sub(of.used) > keyLinger)
	})
	first := k.first(used, carried)
	next := k.full.Add(-(changeBurst - 1) * refill) // when a change may be made
	if !maps.Equal(first, k.published) && !next.After(now) {
		k.published = first
		k.full = now.Add(max(k.full.Sub(now), 0) + refill)
	}
	for key, of := range k.states {
		if _, isUsed := used[key]; !isUsed || k.published[key] {
			continue
		}
		one := pendingKey{key: key, since: of.since}
		if first[key] {
			one.until = next
		}
		waiting = append(waiting, one)
	}
	slices.SortFunc(waiting, func(a, b pendingKey) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	return waiting
}

// first returns the keys that get a place: the administrator's before all others, then those that some node carries,
// because tenants cannot choose that, and then the oldest.
func (k *keySet) first(used keyUsage, carried map[string]bool) map[policy.Key]bool {
	rank := func(key policy.Key) int {
		switch {
		case used[key]:
			return 0
		case carried[string(key)]:
			return 1
		}
		return 2
	}
	known := slices.SortedFunc(maps.Keys(k.states), func(a, b policy.Key) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), k.states[a].since.Compare(k.states[b].since), cmp.Compare(a, b))
	})
	first := map[policy.Key]bool{}
	for _, key := range known[:min(maxUserKeys, len(known))] {
		first[key] = true
	}
	return first
}

// pendingKey is a key in use that is not published.
type pendingKey struct {
	key          policy.Key
	since, until time.Time // until is zero if no place is free
}

// String says which key waits, until when, and why.
func (d pendingKey) String() string {
	if d.until.IsZero() {
		return fmt.Sprintf("%q waits until a place is free: there are as many keys as can be published", d.key)
	}
	return fmt.Sprintf("%q waits until %s: the published keys changed too often", d.key, d.until.UTC().Format(time.RFC3339))
}

// log logs which keys wait if they are others than in the last line, and when none does any more. Any user may name a
// new key every second, so there is one line per refill at most.
func (k *keySet) log(log *slog.Logger, now time.Time, waiting []pendingKey) {
	var keys []policy.Key
	var first []string
	for _, one := range waiting {
		if keys = append(keys, one.key); len(first) < namedKeys {
			first = append(first, one.String())
		}
	}
	switch {
	case slices.Equal(keys, k.logged):
	case len(keys) == 0:
		log.Info("all topology keys in use are published")
		k.logged = nil
	case k.loggedAt.IsZero() || now.Sub(k.loggedAt) >= refill:
		log.Warn("some topology keys in use are not published yet", "count", len(waiting), "first", first)
		k.logged, k.loggedAt = keys, now
	}
}

// describe returns what is published about a node: its labels with published keys.
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
