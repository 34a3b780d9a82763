package fair

import "maps"

// Queue remember what Namespaces have got, so that those that want something get equally much of it. The zero value has
// served none; it should take the place of an old one when nobody wants anything.
type Queue struct {
	virtualTime   int            // where the Namespace began that was served last; who wants something only now begins there, too
	virtualFinish map[string]int // where each begins that is ahead of the clock
}

// OnServed notes that a Namespace has had its turn.
func (t *Queue) OnServed(share Share) {
	if t.virtualFinish == nil {
		t.virtualFinish = map[string]int{}
	}
	t.virtualTime = t.virtualStart(share.Namespace)
	t.virtualFinish[share.Namespace] = t.virtualTime + share.Weight
}

func (t *Queue) virtualStart(namespace string) int {
	return max(t.virtualFinish[namespace], t.virtualTime)
}

// Schedule returns all that waits, in the order in which it should be served. The caller serves some of it, from the front,
// says which by Serve, and asks again the next time. Things of one Namespace stay in their order. If it is the turn of
// several, the thing that comes first in items goes first.
func Schedule[T any](t *Queue, items []T, of func(T) Share) []T {
	maps.DeleteFunc(t.virtualFinish, func(_ string, next int) bool { return next <= t.virtualTime })
	return sorted(items, of, t.virtualStart, false)
}
