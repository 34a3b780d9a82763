//go:build linux

package serviceindex

import (
	"sync"
	"time"
)

// ttlCache keeps what left for a while. One goroutine notes and forgets; any goroutine may ask.
type ttlCache[K comparable, V any] struct {
	keep   time.Duration
	values sync.Map // of K to noted[V]
	order  []expiry[K]
}

type cacheEntry[V any] struct {
	value V
	at    time.Time
}

// expiry records that a key was noted; a key that is noted again gets another one.
type expiry[K comparable] struct {
	key K
	at  time.Time
}

// maxEntries bounds how much a memory keeps, however often things come and go.
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

// expire forgets what is old, and the first of too much. It reports whether there was too much.
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

// drop forgets a key, unless it was noted again.
func (m *ttlCache[K, V]) drop(e expiry[K]) {
	if value, isKnown := m.get(e.key); isKnown && !value.at.After(e.at) {
		m.values.Delete(e.key)
	}
}
