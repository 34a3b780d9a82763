package metrics

import (
	"maps"
	"sync"
)

// repairs counts the foreign changes that a complete sync repairs: those that were noticed before it began. What is
// noticed while it runs may come after what it wrote.
type repairs struct {
	mu       sync.Mutex
	noticed  map[string]int // by family, and not repaired yet
	underway map[string]int // those of them that were noticed before the sync that runs
}

func newRepairs() *repairs {
	return &repairs{noticed: map[string]int{}, underway: map[string]int{}}
}

func (r *repairs) onDrift(family string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noticed[family]++
}

func (r *repairs) onRepairStart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underway = maps.Clone(r.noticed)
}

// onRepaired returns, by family, how many changes the newest complete sync has repaired.
func (r *repairs) onRepaired() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	repaired := r.underway
	for family, n := range repaired {
		r.noticed[family] -= n
	}
	r.underway = map[string]int{}
	return repaired
}
