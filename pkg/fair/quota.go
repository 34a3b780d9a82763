package fair

// Quota are a number of equal places. A Namespace takes them one by one, and may have all as long as nobody else wants one.
type Quota struct {
	free int
	used map[string]int
	// namespacesByUsed is how many Namespaces hold each number of places, and most the largest number that one holds.
	namespacesByUsed map[int]int
	maxUsed          int
}

// NewQuota returns so many free places.
func NewQuota(number int) *Quota {
	return &Quota{free: number, used: map[string]int{}, namespacesByUsed: map[int]int{}}
}

// Free returns how many places nobody has.
func (p *Quota) Free() int { return p.free }

// Used returns how many a Namespace has.
func (p *Quota) Used(namespace string) int { return p.used[namespace] }

// MaxUsed returns how many the Namespace has that has most.
func (p *Quota) MaxUsed() int { return p.maxUsed }

// ShouldRelease reports whether another Namespace should give up a place for one that has none left to take: it has at least two
// more, so that it does not want the place back.
func (p *Quota) ShouldRelease(to string) bool { return p.maxUsed >= p.used[to]+2 }

// Acquire takes a place for a Namespace; false if none is free.
func (p *Quota) Acquire(namespace string) bool {
	if p.free == 0 {
		return false
	}
	p.free--
	p.change(namespace, +1)
	return true
}

// Release makes a place of a Namespace free.
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
		p.maxUsed-- // the one that had most has one fewer now
	}
}
