package fair

import "maps"

// Turns remember what Namespaces have got, so that those that want something get equally much of it. The zero value has
// served none; it should take the place of an old one when nobody wants anything.
type Turns struct {
	clock int            // where the Namespace began that was served last; who wants something only now begins there, too
	next  map[string]int // where each begins that is ahead of the clock
}

// Serve notes that a Namespace has had its turn.
func (t *Turns) Serve(share Share) {
	if t.next == nil {
		t.next = map[string]int{}
	}
	t.clock = t.begin(share.Namespace)
	t.next[share.Namespace] = t.clock + share.Weight
}

func (t *Turns) begin(namespace string) int { return max(t.next[namespace], t.clock) }

// InTurns returns all that waits, in the order in which it should be served. The caller serves some of it, from the front,
// says which by Serve, and asks again the next time. Things of one Namespace stay in their order. If it is the turn of
// several, the thing that comes first in items goes first.
func InTurns[T any](t *Turns, items []T, of func(T) Share) []T {
	maps.DeleteFunc(t.next, func(_ string, next int) bool { return next <= t.clock })
	return sorted(items, of, t.begin, false)
}
