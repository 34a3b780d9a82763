//go:build linux

package serviceindex

import (
	"sync"
	"time"
)

// ttlCache keeps entries for a while after they were removed elsewhere. One goroutine calls put and expire; any
// goroutine may call get.
type ttlCache[K comparable, V any] struct {
	ttl    time.Duration
	values sync.Map // of K to cacheEntry[V]
	order  []expiry[K]
}

type cacheEntry[V any] struct {
	value V
	putAt time.Time
}

// expiry records when a key was put. Putting a key again adds another expiry.
type expiry[K comparable] struct {
	key   K
	putAt time.Time
}

// maxEntries limits the entries of a cache, however often objects are added and removed.
const maxEntries = 1 << 16

func (c *ttlCache[K, V]) put(key K, value V, now time.Time) {
	c.values.Store(key, cacheEntry[V]{value, now})
	c.order = append(c.order, expiry[K]{key, now})
}

func (c *ttlCache[K, V]) get(key K) (cacheEntry[V], bool) {
	found, isKnown := c.values.Load(key)
	value, _ := found.(cacheEntry[V])
	return value, isKnown
}

// expire drops expired entries, and the oldest ones beyond maxEntries. It reports whether maxEntries was exceeded.
func (c *ttlCache[K, V]) expire(now time.Time) (overflowed bool) {
	n := 0
	for ; n < len(c.order) && now.Sub(c.order[n].putAt) > c.ttl; n++ {
		c.drop(c.order[n])
	}
	for ; len(c.order)-n > maxEntries; n++ {
		c.drop(c.order[n])
		overflowed = true
	}
	c.order = c.order[n:]
	return overflowed
}

// drop deletes a key unless it was put again later.
func (c *ttlCache[K, V]) drop(e expiry[K]) {
	if value, isKnown := c.get(e.key); isKnown && !value.putAt.After(e.putAt) {
		c.values.Delete(e.key)
	}
}
