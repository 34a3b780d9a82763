package reachability

import (
	"net/netip"
	"time"
)

// Flow is a connection that was translated and has no answer yet.
type Flow struct {
	ID       uint32 // the same as long as conntrack has the entry
	Client   netip.Addr
	Endpoint netip.AddrPort
	Node     string // where the endpoint is
}

// pair is who dials whom.
type pair struct {
	client   netip.Addr
	endpoint netip.AddrPort
}

func (f *Flow) pair() pair { return pair{f.Client, f.Endpoint} }

// looks remember what was unanswered in the last look.
type looks struct {
	rules *rules
	since map[Flow]time.Time
}

// old returns the connections that were unanswered in an earlier look, too, some time ago.
func (l *looks) old(now time.Time, flows []Flow) []Flow {
	since, old := make(map[Flow]time.Time, len(flows)), []Flow(nil)
	for _, flow := range flows {
		first, known := l.since[flow]
		if !known || now.Before(first) {
			first = now
		}
		since[flow] = first
		if known && now.Sub(first) >= l.rules.again {
			old = append(old, flow)
		}
	}
	l.since = since
	return old
}

// wolves are pairs whose connections stayed unanswered though the endpoint's node answers: a policy denies the client,
// the endpoint only listens, or somebody means harm. They are believed less and less often. If more cry than can be
// remembered, those that have been silent longest are forgotten, and may cost dials again.
type wolves struct {
	rules *rules
	// A pair that cries is put into recent. When recent holds half of the pairs that may be remembered, it becomes
	// earlier.
	recent, earlier map[pair]cry
}

// cry is what is remembered of a pair.
type cry struct {
	until time.Time     // when it is believed again
	pause time.Duration // that it got
}

func (w *wolves) last(p pair) (last cry, known bool) {
	if last, known = w.recent[p]; !known {
		last, known = w.earlier[p]
	}
	return last, known
}

// believed reports whether a pair is believed.
func (w *wolves) believed(now time.Time, p pair) bool {
	last, known := w.last(p)
	return !known || !now.Before(last.until) || last.until.Sub(now) > last.pause // the clock was set back
}

// cried notes that the node of a pair's endpoint did answer.
func (w *wolves) cried(now time.Time, p pair) {
	last, known := w.last(p)
	pause := w.rules.disbelief
	if known && now.Sub(last.until) < w.rules.calm {
		pause = min(2*last.pause, w.rules.longestDisbelief)
	}
	if len(w.recent) >= w.rules.pairs/2 {
		w.recent, w.earlier = nil, w.recent
	}
	if w.recent == nil {
		w.recent = map[pair]cry{}
	}
	w.recent[p] = cry{now.Add(pause), pause}
}
