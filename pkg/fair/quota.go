package fair

// Quota is a number of equal slots. A Namespace acquires them one by one, and may have all while no other needs one.
type Quota struct {
	free int
	used map[string]int
	// namespacesByUsed is how many Namespaces use each number of slots, and maxUsed is the largest such number.
	namespacesByUsed map[int]int
	maxUsed          int
}

// NewQuota returns a quota of free slots.
func NewQuota(slots int) *Quota {
	return &Quota{free: slots, used: map[string]int{}, namespacesByUsed: map[int]int{}}
}

// Free returns the number of free slots.
func (q *Quota) Free() int { return q.free }

// Used returns how many slots a Namespace uses.
func (q *Quota) Used(namespace string) int { return q.used[namespace] }

// MaxUsed returns the largest number of slots that a Namespace uses.
func (q *Quota) MaxUsed() int { return q.maxUsed }

// ShouldRelease reports whether another Namespace should release a slot for one that finds none free. The other one
// must use at least two more, so that it does not claim the slot back.
func (q *Quota) ShouldRelease(namespace string) bool { return q.maxUsed >= q.used[namespace]+2 }

// Acquire acquires a slot for a Namespace. It returns false if none is free.
func (q *Quota) Acquire(namespace string) bool {
	if q.free == 0 {
		return false
	}
	q.free--
	q.adjust(namespace, +1)
	return true
}

// Release frees a slot of a Namespace.
func (q *Quota) Release(namespace string) {
	q.free++
	q.adjust(namespace, -1)
}

func (q *Quota) adjust(namespace string, delta int) {
	old := q.used[namespace]
	q.used[namespace] = old + delta
	if q.used[namespace] == 0 {
		delete(q.used, namespace)
	}
	q.namespacesByUsed[old]--
	q.namespacesByUsed[old+delta]++
	if q.maxUsed = max(q.maxUsed, old+delta); q.namespacesByUsed[q.maxUsed] == 0 {
		q.maxUsed-- // the Namespace with the most now has one fewer
	}
}
