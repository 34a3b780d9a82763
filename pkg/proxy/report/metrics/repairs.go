package metrics

import (
	"maps"
	"sync"
)

// repairs counts the external modifications that a full sync repairs: those that were detected before it started. Those
// that are detected during the sync may be later than its writes.
type repairs struct {
	mu       sync.Mutex
	noticed  map[string]int // by family, and not repaired yet
	underway map[string]int // those that were detected before the running sync
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

// onRepaired returns, by family, how many modifications the last full sync repaired.
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
