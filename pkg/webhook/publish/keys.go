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

// always are published whether or not a Service names them: where nodes are, and their demand.
var always = append([]policy.Key{corev1.LabelTopologyRegion, policy.Zone}, policy.DemandLabels[:]...)

// places is how many keys can be published beside those.
var places = topologyslice.MaxKeys - len(always)

// keyLinger is how long a key is published after it went out of use, and how long a key that lost its place to another
// stays without one. A key that comes or goes changes every slice.
const keyLinger = 24 * time.Hour

// usage says in which Namespaces each key is used. byAdministrator stands for the webhook's configuration and its own
// Namespace.
type usage map[policy.Key]map[string]bool

const byAdministrator = ""

func (u usage) add(key policy.Key, namespace string) {
	if u[key] == nil {
		u[key] = map[string]bool{}
	}
	u[key][namespace] = true
}

// keyring says which keys are published, and holds what that depends on besides their use. It is a value: choose
// returns the next one, and does not change this one.
type keyring struct {
	// published are the keys that have a place; lost is when keys that nodes carry lost theirs to another key.
	published map[policy.Key]tenure
	lost      map[policy.Key]time.Time
	// waiting are the keys in use that have no place, and since when.
	waiting map[policy.Key]time.Time
	// changes is what all changes have spent, and changesBy what those of each Namespace have spent.
	changes   spent
	changesBy map[string]spent
}

// tenure is how a key has its place: since when, when it was last seen in use, and where.
type tenure struct {
	since, used time.Time
	by          map[string]bool
}

// newKeyring is the keyring of a new leader. It keeps the keys that slices have already, as if they had just gone out
// of use, and may make one change at once: however often the leader changes, each makes at most one change beyond the
// budget. If nothing is published yet, the first publication takes all keys in use.
func newKeyring(now time.Time, published []string) keyring {
	k := keyring{published: map[policy.Key]tenure{}, lost: map[policy.Key]time.Time{}, changesBy: map[string]spent{}}
	for _, key := range published {
		if !slices.Contains(always, policy.Key(key)) {
			k.published[policy.Key(key)] = tenure{since: now, used: now}
		}
	}
	if len(published) > 0 {
		k.changes = inAll.butOne(now)
	}
	return k
}

// keys are those to publish, sorted.
func (k keyring) keys() []string {
	keys := make([]string, 0, topologyslice.MaxKeys)
	for _, key := range always {
		keys = append(keys, string(key))
	}
	for key := range k.published {
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys
}

// choose returns the keyring after a look at which keys are used, and which of them some node carries; and the keys that
// are used and not published, with the reason, in the order in which they came. Keys that EndpointSlices answer
// themselves, and `*`, do not count.
func (k keyring) choose(now time.Time, used usage, carried map[string]bool) (keyring, []deferral) {
	next := keyring{
		published: maps.Clone(k.published), lost: maps.Clone(k.lost), waiting: map[policy.Key]time.Time{},
		changes: k.changes, changesBy: maps.Clone(k.changesBy),
	}
	maps.DeleteFunc(next.lost, func(_ policy.Key, at time.Time) bool { return now.Sub(at) > keyLinger })
	maps.DeleteFunc(next.changesBy, func(_ string, s spent) bool { return !s.After(now) })
	for key, by := range used {
		if of, isPublished := next.published[key]; isPublished {
			next.published[key] = tenure{of.since, now, by}
		} else if key != policy.Hostname && key != policy.AnyNode && !slices.Contains(always, key) {
			since, waits := k.waiting[key]
			if !waits {
				since = now
			}
			next.waiting[key] = since
		}
	}
	c := newContest(&next, now, used, carried)
	if inAll.has(next.changes, now) {
		c.change()
	}
	return next, c.waits()
}

// deferral is a key in use that is not published.
type deferral struct {
	key   policy.Key
	since time.Time
	why   string
	until time.Time // zero: until a place is free
}

// The reasons for which keys wait.
const (
	manyChanges   = "the published keys changed too often"
	changesOfOne  = "the keys of its Namespaces changed too often"
	lostItsPlace  = "it lost its place to a key of a Namespace that has fewer"
	noPlaceIsFree = "there are as many keys as can be published"
)

// waits says why the remaining keys wait.
func (c *contest) waits() []deferral {
	var all []deferral
	weakest := c.weakest()
	for key, since := range c.waiting {
		one := deferral{key: key, since: since}
		lost, hasLost := c.lost[key]
		switch next := c.nextOf(key); {
		case hasLost:
			one.why, one.until = lostItsPlace, lost.Add(keyLinger)
		case len(c.published) >= places && c.victim(key, weakest) == "":
			one.why = noPlaceIsFree
		case next.After(c.now):
			one.why, one.until = changesOfOne, next
		default:
			one.why, one.until = manyChanges, inAll.next(c.changes)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b deferral) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	return all
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
