package publish

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// contest is who gets a place among the published keys, and who loses one for it.
//
// A key that nodes carry comes before one that none does, because tenants cannot choose what nodes carry. Among those
// the administrator's come first, and then those of Namespaces with fewer places, so a Namespace without a place comes
// before all others. A key loses its place only to a key that comes before it by this rule, and by more than one place:
// otherwise it would come back.
type contest struct {
	*keyring
	now     time.Time
	used    usage
	carried map[string]bool
	// held is how many places each Namespace has for keys that nodes carry, and asked for which this change is made.
	held    map[string]int
	asked   map[string]bool
	changed bool
}

// byEarlierLeader stands for the Namespaces of keys that are published and were not in use since the leader began.
const byEarlierLeader = "(an earlier leader)"

func newContest(k *keyring, now time.Time, used usage, carried map[string]bool) *contest {
	c := &contest{keyring: k, now: now, used: used, carried: carried, held: map[string]int{}, asked: map[string]bool{}}
	for key, of := range k.published {
		c.hold(key, of.by, 1)
	}
	return c
}

// change makes one change of the published keys, which combines everything that may change now.
func (c *contest) change() {
	c.expire()
	wanting := slices.DeleteFunc(slices.Collect(maps.Keys(c.waiting)), func(key policy.Key) bool {
		_, hasLost := c.lost[key]
		return hasLost || c.nextOf(key).After(c.now)
	})
	for len(wanting) > 0 {
		first := c.first(wanting)
		if !c.admit(wanting[first]) {
			break // and no other one, then
		}
		wanting = slices.Delete(wanting, first, first+1)
	}
	if !c.changed {
		return
	}
	c.changes = inAll.spend(c.changes, c.now)
	for namespace := range c.asked {
		c.changesBy[namespace] = ofNamespace.spend(c.changesBy[namespace], c.now)
	}
}

// expire takes the places of keys that have long been out of use, and of excess keys: a leader that ended while it
// wrote may have left both the old and the new keys.
func (c *contest) expire() {
	for key, of := range c.published {
		if c.used[key] == nil && c.now.Sub(of.used) > keyLinger {
			c.drop(key)
		}
	}
	for len(c.published) > places {
		weakest := c.weakest()
		c.drop(cmp.Or(weakest.uncarried.key, weakest.carried.key, slices.Max(slices.Collect(maps.Keys(c.published)))))
	}
}

// nextOf returns from when on a Namespace that uses a key may ask for a change.
func (c *contest) nextOf(key policy.Key) time.Time {
	var first time.Time
	for namespace := range c.used[key] {
		if next := ofNamespace.next(c.changesBy[namespace]); first.IsZero() || next.Before(first) {
			first = next
		}
	}
	return first
}

// claim is how a key that wants a place compares with others.
type claim struct {
	key    policy.Key
	rank   int // the least comes first
	fewest int // places of a Namespace that uses it
	since  time.Time
}

func (c *contest) claim(key policy.Key) claim {
	rank := 0
	if !c.carried[string(key)] {
		rank = 2
	}
	if !c.isPinned(key) {
		rank++
	}
	return claim{key, rank, c.fewest(c.used[key]), c.waiting[key]}
}

func (c claim) compare(other claim) int {
	return cmp.Or(
		cmp.Compare(c.rank, other.rank), cmp.Compare(c.fewest, other.fewest), c.since.Compare(other.since), cmp.Compare(c.key, other.key),
	)
}

// first returns which of some keys is the next to get a place.
func (c *contest) first(wanting []policy.Key) int {
	first, best := 0, c.claim(wanting[0])
	for i, key := range wanting[1:] {
		if one := c.claim(key); one.compare(best) < 0 {
			first, best = i+1, one
		}
	}
	return first
}

// isPinned reports whether the administrator names a key: no tenant's key takes its place.
func (c *contest) isPinned(key policy.Key) bool { return c.used[key][byAdministrator] }

// admit gives a key a place, and reports whether there is one for it.
func (c *contest) admit(key policy.Key) bool {
	if len(c.published) >= places {
		victim := c.victim(key, c.weakest())
		if victim == "" {
			return false
		}
		c.drop(victim)
		if c.carried[string(victim)] { // users do not choose what nodes carry: as soon as they do, another key comes first
			c.lost[victim] = c.now
		}
	}
	by := c.used[key]
	c.published[key] = tenure{c.now, c.now, by}
	delete(c.waiting, key)
	c.hold(key, by, 1)
	maps.Copy(c.asked, by)
	c.changed = true
	return true
}

// drop takes a place away.
func (c *contest) drop(key policy.Key) {
	c.hold(key, c.published[key].by, -1)
	delete(c.published, key)
	if c.used[key] != nil {
		c.waiting[key] = c.now
	}
	c.changed = true
}

// hold counts places.
func (c *contest) hold(key policy.Key, by map[string]bool, places int) {
	if !c.carried[string(key)] {
		return
	}
	if len(by) == 0 {
		c.held[byEarlierLeader] += places
	}
	for namespace := range by {
		c.held[namespace] += places
	}
}

// fewest is the smallest number of places that any of some Namespaces has.
func (c *contest) fewest(by map[string]bool) int {
	if len(by) == 0 {
		return c.held[byEarlierLeader]
	}
	fewest := -1
	for namespace := range by {
		if held := c.held[namespace]; fewest < 0 || held < fewest {
			fewest = held
		}
	}
	return fewest
}

// weakest are the published keys that lose their places first: one among those that no node carries, one among the
// others; without a key if there is none.
type weakest struct{ uncarried, carried claim }

// weakest finds them: the keys of Namespaces with the most places lose theirs first, and of those the newest ones.
func (c *contest) weakest() (found weakest) {
	for key, of := range c.published {
		if c.isPinned(key) {
			continue
		}
		last := &found.uncarried
		if c.carried[string(key)] {
			last = &found.carried
		}
		one := claim{key: key, fewest: c.fewest(of.by), since: of.since}
		if last.key == "" || one.compare(*last) > 0 {
			*last = one
		}
	}
	return found
}

// victim is the key that loses its place to another one if none is free; empty if the other one must wait.
func (c *contest) victim(of policy.Key, weakest weakest) policy.Key {
	switch {
	case !c.carried[string(of)] && !c.isPinned(of):
		return ""
	case weakest.uncarried.key != "":
		return weakest.uncarried.key
	case !c.carried[string(of)]:
		return ""
	case c.isPinned(of) || weakest.carried.fewest > c.fewest(c.used[of])+1:
		return weakest.carried.key
	}
	return ""
}
