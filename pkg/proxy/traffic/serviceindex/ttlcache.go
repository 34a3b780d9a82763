//go:build linux

package serviceindex

import (
	"sync"
	"time"
)

// ttlCache keeps entries for a while after they were removed elsewhere. One goroutine calls put and expire; any
// goroutine may call get.
type ttlCache[K comparable, V any] struct {
	keep   time.Duration
	values sync.Map // of K to cacheEntry[V]
	order  []expiry[K]
}

type cacheEntry[V any] struct {
	value V
	at    time.Time
}

// expiry records when a key was put. Putting a key again adds another expiry.
type expiry[K comparable] struct {
	key K
	at  time.Time
}

// maxEntries limits the entries of a cache, however often objects are added and removed.
const maxEntries = 1 << 16

func (m *ttlCache[K, V]) put(key K, value V, now time.Time) {
	m.values.Store(key, cacheEntry[V]{value, now})
	m.order = append(m.order, expiry[K]{key, now})
}

func (m *ttlCache[K, V]) get(key K) (cacheEntry[V], bool) {
	found, isKnown := m.values.Load(key)
	value, _ := found.(cacheEntry[V])
	return value, isKnown
}

// expire drops expired entries, and the oldest ones beyond maxEntries. It reports whether maxEntries was exceeded.
func (m *ttlCache[K, V]) expire(now time.Time) (tooMuch bool) {
	n := 0
	for ; n < len(m.order) && now.Sub(m.order[n].at) > m.keep; n++ {
		m.drop(m.order[n])
	}
	for ; len(m.order)-n > maxEntries; n++ {
		m.drop(m.order[n])
		tooMuch = true
	}
	m.order = m.order[n:]
	return tooMuch
}

// drop deletes a key unless it was put again later.
func (m *ttlCache[K, V]) drop(e expiry[K]) {
	if value, isKnown := m.get(e.key); isKnown && !value.at.After(e.at) {
		m.values.Delete(e.key)
	}
}
