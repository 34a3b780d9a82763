package metrics

import (
	"maps"
	"sync"
)

// repairs counts the external modifications that a full sync repairs: those that were detected before it started. Those
// that are detected during the sync may be later than its writes.
type repairs struct {
	mu         sync.Mutex
	detected   map[string]int // by family, and not repaired yet
	inProgress map[string]int // those that were detected before the running sync
}

func newRepairs() *repairs {
	return &repairs{detected: map[string]int{}, inProgress: map[string]int{}}
}

func (r *repairs) onDrift(family string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.detected[family]++
}

func (r *repairs) onRepairStart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inProgress = maps.Clone(r.detected)
}

// onRepaired returns, by family, how many modifications the last full sync repaired.
func (r *repairs) onRepaired() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	repaired := r.inProgress
	for family, n := range repaired {
		r.detected[family] -= n
	}
	r.inProgress = map[string]int{}
	return repaired
}
