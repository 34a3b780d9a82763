//go:build linux

package owners

import (
	"sync"
	"time"
)

// memory keeps what left for a while. One goroutine notes and forgets; any goroutine may ask.
type memory[K comparable, V any] struct {
	keep   time.Duration
	values sync.Map // of K to noted[V]
	order  []note[K]
}

type noted[V any] struct {
	value V
	at    time.Time
}

// note records that a key was noted; a key that is noted again gets another one.
type note[K comparable] struct {
	key K
	at  time.Time
}

// keepAtMost bounds how much a memory keeps, however often things come and go.
const keepAtMost = 1 << 16

func (m *memory[K, V]) note(key K, value V, now time.Time) {
	m.values.Store(key, noted[V]{value, now})
	m.order = append(m.order, note[K]{key, now})
}

func (m *memory[K, V]) get(key K) (noted[V], bool) {
	found, isKnown := m.values.Load(key)
	value, _ := found.(noted[V])
	return value, isKnown
}

// forget forgets what is old, and the first of too much. It reports whether there was too much.
func (m *memory[K, V]) forget(now time.Time) (tooMuch bool) {
	n := 0
	for ; n < len(m.order) && now.Sub(m.order[n].at) > m.keep; n++ {
		m.drop(m.order[n])
	}
	for ; len(m.order)-n > keepAtMost; n++ {
		m.drop(m.order[n])
		tooMuch = true
	}
	m.order = m.order[n:]
	return tooMuch
}

// drop forgets a key, unless it was noted again.
func (m *memory[K, V]) drop(e note[K]) {
	if value, isKnown := m.get(e.key); isKnown && !value.at.After(e.at) {
		m.values.Delete(e.key)
	}
}
