package publish

import "time"

// budget is how often something may be done: so many times at once, and once more each time that a while has passed.
type budget struct {
	atOnce int
	more   time.Duration
}

// Each change of the published keys writes every slice, and every proxy receives each. Everybody who may edit a Service
// chooses keys, so changes have budgets.
var (
	// inAll is at most ten changes in any hour. A key that waits behind others waits for twelve minutes at most.
	inAll = budget{atOnce: 5, more: 12 * time.Minute}
	// ofNamespace is less than half as much in the long run: two Namespaces leave room for a third.
	ofNamespace = budget{atOnce: 2, more: 30 * time.Minute}
)

// spent is when the budget will be full again. The zero value: it is full.
type spent = time.Time

// next returns the time from which on something is left.
func (b budget) next(s spent) time.Time { return s.Add(-time.Duration(b.atOnce-1) * b.more) }

// has reports whether something is left.
func (b budget) has(s spent, now time.Time) bool { return !b.next(s).After(now) }

// spend takes one.
func (b budget) spend(s spent, now time.Time) spent {
	if s.Before(now) {
		s = now
	}
	return s.Add(b.more)
}

// butOne is a budget with one left to spend.
func (b budget) butOne(now time.Time) spent { return now.Add(time.Duration(b.atOnce-1) * b.more) }
