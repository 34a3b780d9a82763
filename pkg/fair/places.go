package fair

// Places are a number of equal places. A Namespace takes them one by one, and may have all as long as nobody else wants one.
type Places struct {
	free int
	held map[string]int
	// holders is how many Namespaces hold each number of places, and most the largest number that one holds.
	holders map[int]int
	most    int
}

// NewPlaces returns so many free places.
func NewPlaces(number int) *Places {
	return &Places{free: number, held: map[string]int{}, holders: map[int]int{}}
}

// Free returns how many places nobody has.
func (p *Places) Free() int { return p.free }

// Held returns how many a Namespace has.
func (p *Places) Held(namespace string) int { return p.held[namespace] }

// Most returns how many the Namespace has that has most.
func (p *Places) Most() int { return p.most }

// Owes reports whether another Namespace should give up a place for one that has none left to take: it has at least two
// more, so that it does not want the place back.
func (p *Places) Owes(to string) bool { return p.most >= p.held[to]+2 }

// Take takes a place for a Namespace; false if none is free.
func (p *Places) Take(namespace string) bool {
	if p.free == 0 {
		return false
	}
	p.free--
	p.change(namespace, +1)
	return true
}

// GiveBack makes a place of a Namespace free.
func (p *Places) GiveBack(namespace string) {
	p.free++
	p.change(namespace, -1)
}

func (p *Places) change(namespace string, by int) {
	before := p.held[namespace]
	p.held[namespace] = before + by
	if p.held[namespace] == 0 {
		delete(p.held, namespace)
	}
	p.holders[before]--
	p.holders[before+by]++
	if p.most = max(p.most, before+by); p.holders[p.most] == 0 {
		p.most-- // the one that had most has one fewer now
	}
}
