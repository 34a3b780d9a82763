package fair

// Quota is a number of equal slots. A Namespace acquires them one by one, and may have all while no other needs one.
type Quota struct {
	free int
	used map[string]int
	// namespacesByUsed is how many Namespaces use each number of slots, and maxUsed the largest number that one uses.
	namespacesByUsed map[int]int
	maxUsed          int
}

// NewQuota returns a quota of free slots.
func NewQuota(number int) *Quota {
	return &Quota{free: number, used: map[string]int{}, namespacesByUsed: map[int]int{}}
}

// Free returns the number of free slots.
func (p *Quota) Free() int { return p.free }

// Used returns how many slots a Namespace uses.
func (p *Quota) Used(namespace string) int { return p.used[namespace] }

// MaxUsed returns how many slots the Namespace with the most uses.
func (p *Quota) MaxUsed() int { return p.maxUsed }

// ShouldRelease reports whether another Namespace should release a slot for one that finds none free. The other one
// must use at least two more, so that it does not claim the slot back.
func (p *Quota) ShouldRelease(to string) bool { return p.maxUsed >= p.used[to]+2 }

// Acquire acquires a slot for a Namespace. It returns false if none is free.
func (p *Quota) Acquire(namespace string) bool {
	if p.free == 0 {
		return false
	}
	p.free--
	p.change(namespace, +1)
	return true
}

// Release frees a slot of a Namespace.
func (p *Quota) Release(namespace string) {
	p.free++
	p.change(namespace, -1)
}

func (p *Quota) change(namespace string, by int) {
	before := p.used[namespace]
	p.used[namespace] = before + by
	if p.used[namespace] == 0 {
		delete(p.used, namespace)
	}
	p.namespacesByUsed[before]--
	p.namespacesByUsed[before+by]++
	if p.maxUsed = max(p.maxUsed, before+by); p.namespacesByUsed[p.maxUsed] == 0 {
		p.maxUsed-- // the Namespace with the most now has one fewer
	}
}
