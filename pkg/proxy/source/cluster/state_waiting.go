package cluster

import (
	"maps"
	"time"
)

// pace says how fast nodes are listed, and how long Services wait for that.
type pace struct {
	// interval is the least time between the beginnings of two lists.
	interval time.Duration
	// patience is the longest time that a Service is held, that the first update waits, and that a list is waited for.
	patience time.Duration
}

// grain is how much earlier than its end a wait may be ended, so that what ends at nearly the same time ends together. Each look at
// the Services that wait costs as much as there are.
func (p pace) grain() time.Duration { return p.patience / 100 }

// ended is what time ended.
type ended struct {
	services int    // were put in force though labels that they name are not known
	overdue  keySet // the keys of the list that nobody waits for any more; nil if there is none
}

// startWaiting tells that every other list is complete, so that nodes can be listed. What was held before waits from now on.
func (s *state) startWaiting() {
	s.first = s.now
	for name, held := range s.held {
		held.since = s.now
		s.held[name] = held
	}
}

// firstTaken tells that the first update was taken.
func (s *state) firstTaken() { s.first, s.isLate = time.Time{}, false }

// pass decides what is due now: a list that may begin, and waits that have taken long enough. It returns the latter, and when something
// is due next; zero while nothing is.
func (s *state) pass(pace pace) (ended, time.Time) {
	ended := s.endWaits(pace)
	var next earliest
	if s.coming != nil && !s.coming.isBegun() {
		if at := s.begun.Add(pace.interval); s.begun.IsZero() || !s.now.Before(at) {
			s.begun, s.coming.begun = s.now, s.now
		} else {
			next.add(at)
		}
	}
	for _, held := range s.held {
		next.add(held.since.Add(pace.patience))
	}
	if len(s.held) > 0 && !s.first.IsZero() {
		next.add(s.first.Add(pace.patience))
	}
	if s.coming != nil && s.coming.isBegun() && !s.coming.isOverdue {
		next.add(s.coming.begun.Add(pace.patience))
	}
	return ended, next.at
}

// endWaits ends the waits that have taken long enough: of the first update for all Services, of all Services for a list, and of a
// Service for whatever list. So nobody's keys make the Service of somebody else wait longer.
func (s *state) endWaits(pace pace) ended {
	isOver := func(since time.Time) bool { return s.now.Sub(since) >= pace.patience-pace.grain() }
	var ended ended
	if s.coming != nil && s.coming.isBegun() && !s.coming.isOverdue && isOver(s.coming.begun) {
		s.coming.isOverdue = true
		ended.overdue = maps.Clone(s.coming.keys)
	}
	if !s.first.IsZero() && isOver(s.first) {
		s.isLate = true
	}
	before := len(s.held)
	s.admitHeld(isOver)
	ended.services = before - len(s.held)
	s.followUse()
	return ended
}

// never is of a wait that no time ends.
func never(time.Time) bool { return false }

// earliest is the earliest of some times; zero if there are none.
type earliest struct{ at time.Time }

func (e *earliest) add(at time.Time) {
	if e.at.IsZero() || at.Before(e.at) {
		e.at = at
	}
}
