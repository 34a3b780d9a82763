package topologypublisher

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// builtinKeys are published whether or not a Service names them: the nodes' region and zone, and their demand.
var builtinKeys = append([]policy.Key{corev1.LabelTopologyRegion, policy.Zone}, policy.DemandLabels[:]...)

// maxUserKeys is how many other keys can be published.
var maxUserKeys = v1alpha1.MaxKeys - len(builtinKeys)

// keyRetention is how long a key stays published after its last use.
const keyRetention = 24 * time.Hour

// A change of the published keys writes every slice, and every proxy receives each. Every user who may edit a Service
// chooses keys, so changes are limited by a token bucket: a burst of changeBurst, and one more per refill. That is at
// most ten in any hour.
const (
	changeBurst    = 5
	refillInterval = 12 * time.Minute
)

// maxLoggedKeys is how many keys a log line names.
const maxLoggedKeys = 10

// keyUsage are the keys in use. The value is true for the administrator's keys: those in the webhook's configuration or
// its own Namespace.
type keyUsage map[policy.Key]bool

func (u keyUsage) add(key policy.Key, isAdministrators bool) { u[key] = u[key] || isAdministrators }

// keySet chooses the published keys, and keeps the state for this.
type keySet struct {
	// states are the keys in use, and published keys for some time after their last use.
	states    map[policy.Key]keyState
	published map[policy.Key]bool
	// fullAt is when the token bucket is full again.
	fullAt time.Time
	// logged are the pending keys of the last log line about them, and loggedAt is its time.
	logged   []policy.Key
	loggedAt time.Time
}

// keyState is when the use of a key began, and when it was last seen in use.
type keyState struct{ since, lastUsed time.Time }

// newKeySet returns the key set of a new leader. It keeps the keys of existing slices, as if their use had just ended,
// and starts with one token: each change of the leader allows at most one change of keys beyond the budget. If nothing
// is published yet, the first publication takes all keys in use.
func newKeySet(now time.Time, published []string) *keySet {
	k := &keySet{states: map[policy.Key]keyState{}, published: map[policy.Key]bool{}}
	for _, key := range published {
		if countsAgainstQuota(policy.Key(key)) {
			k.states[policy.Key(key)], k.published[policy.Key(key)] = keyState{now, now}, true
		}
	}
	if len(published) > 0 {
		k.fullAt = now.Add((changeBurst - 1) * refillInterval)
	}
	return k
}

// countsAgainstQuota returns false for keys that are always published, and for those for which proxies need only
// EndpointSlices.
func countsAgainstQuota(key policy.Key) bool {
	return key != policy.Hostname && key != policy.AnyNode && !slices.Contains(builtinKeys, key)
}

// keys returns the keys to publish, sorted.
func (k *keySet) keys() []string {
	keys := make([]string, 0, v1alpha1.MaxKeys)
	for _, key := range builtinKeys {
		keys = append(keys, string(key))
	}
	for key := range k.published {
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys
}

// choose updates the published keys from the keys in use, and from the keys of node labels (nodeKeys). It returns the
// keys in use that are not published, the oldest first. All differences are applied as one change.
func (k *keySet) choose(now time.Time, used keyUsage, nodeKeys map[string]bool) (allPending []pendingKey) {
	for key := range used {
		if countsAgainstQuota(key) {
			state, isKnown := k.states[key]
			if !isKnown {
				state.since = now
			}
			k.states[key] = keyState{state.since, now}
		}
	}
	maps.DeleteFunc(k.states, func(key policy.Key, state keyState) bool {
		_, isUsed := used[key]
		return !isUsed && (!k.published[key] || now.Sub(state.lastUsed) > keyRetention)
	})
	fitting := k.fittingKeys(used, nodeKeys)
	nextToken := k.fullAt.Add(-(changeBurst - 1) * refillInterval) // when the bucket has a token
	if !maps.Equal(fitting, k.published) && !nextToken.After(now) {
		k.published = fitting
		k.fullAt = now.Add(max(k.fullAt.Sub(now), 0) + refillInterval)
	}
	for key, state := range k.states {
		if _, isUsed := used[key]; !isUsed || k.published[key] {
			continue
		}
		pending := pendingKey{key: key, since: state.since}
		if fitting[key] {
			pending.until = nextToken
		}
		allPending = append(allPending, pending)
	}
	slices.SortFunc(allPending, func(a, b pendingKey) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	return allPending
}

// fittingKeys returns the keys that fit: first the administrator's, then those that some node has, because tenants
// cannot choose node labels, and then the oldest.
func (k *keySet) fittingKeys(used keyUsage, nodeKeys map[string]bool) map[policy.Key]bool {
	rank := func(key policy.Key) int {
		switch {
		case used[key]:
			return 0
		case nodeKeys[string(key)]:
			return 1
		}
		return 2
	}
	ranked := slices.SortedFunc(maps.Keys(k.states), func(a, b policy.Key) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), k.states[a].since.Compare(k.states[b].since), cmp.Compare(a, b))
	})
	fitting := map[policy.Key]bool{}
	for _, key := range ranked[:min(maxUserKeys, len(ranked))] {
		fitting[key] = true
	}
	return fitting
}

// pendingKey is a key in use that is not published.
type pendingKey struct {
	key          policy.Key
	since, until time.Time // until is zero if the key does not fit
}

// String returns the key, until when it is pending, and the reason.
func (k pendingKey) String() string {
	if k.until.IsZero() {
		return fmt.Sprintf("%q waits for a free slot: the maximum number of keys is published", k.key)
	}
	return fmt.Sprintf("%q waits until %s: the published keys changed too often", k.key, k.until.UTC().Format(time.RFC3339))
}

// log logs the pending keys if they differ from those of the last line, and when none is pending any more. Any user may
// name a new key every second, so it logs at most one line per refill.
func (k *keySet) log(log *slog.Logger, now time.Time, allPending []pendingKey) {
	var keys []policy.Key
	var first []string
	for _, pending := range allPending {
		if keys = append(keys, pending.key); len(first) < maxLoggedKeys {
			first = append(first, pending.String())
		}
	}
	switch {
	case slices.Equal(keys, k.logged):
	case len(keys) == 0:
		log.Info("all topology keys in use are published")
		k.logged = nil
	case k.loggedAt.IsZero() || now.Sub(k.loggedAt) >= refillInterval:
		log.Warn("some topology keys in use are not published yet", "count", len(allPending), "first", first)
		k.logged, k.loggedAt = keys, now
	}
}

// publishedLabels returns the published part of a node: its labels with published keys.
func publishedLabels(labels map[string]string, keys []string) map[string]string {
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
