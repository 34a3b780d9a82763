package cluster

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// change lets the state decide about something that happened, and then, with the state unlocked, wakes those whom the
// decision concerns.
func (w *Watcher) change(decide func(*state)) {
	for _, concerned := range w.decide(decide) {
		concerned.Send()
	}
}

// decide lets the state decide, and returns whom that concerns: there may be something to deliver, something followed
// on demand may have become needed or unneeded, or we must find out whether a node still exists.
func (w *Watcher) decide(decide func(*state)) (concerned []wake.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.now = time.Now()
	decide(w.state)
	w.wakeLater()
	if w.state.mayHaveNews() {
		concerned = append(concerned, w.fresh)
	}
	for _, d := range w.onDemand {
		if wanted := d.wants(w.state); wanted != d.wanted {
			d.wanted = wanted
			concerned = append(concerned, d.need)
		}
	}
	if w.state.areMoved {
		w.state.areMoved = false
		concerned = append(concerned, w.moved)
	}
	if w.state.nodes.HasQuestions() {
		concerned = append(concerned, w.missed)
	}
	return concerned
}

// longestRest is how long the timer rests at most: setting the clock changes when an evacuation ends.
const longestRest = time.Minute

// wakeLater sets the timer to when something is due next. The caller holds mu.
func (w *Watcher) wakeLater() {
	at, some := w.state.next()
	if !some {
		at = time.Time{}
	}
	if at.Equal(w.waking) {
		return
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.waking = at; some {
		w.timer = time.AfterFunc(min(time.Until(at), longestRest), w.expire)
	}
}

// expire does what is due.
func (w *Watcher) expire() {
	var vain *nodes.Vain
	waited := 0
	w.change(func(s *state) {
		w.waking = time.Time{} // so that the timer is set anew
		vain, waited = s.expire()
	})
	if waited > 0 {
		w.options.Log.Warn("timed out reading what was measured of Services; until it is read, demand is assumed",
			"services", waited, "after", nodes.Patience)
	}
	if vain != nil {
		w.options.Log.Warn("timed out listing other nodes; until it succeeds, endpoints on unknown nodes match only `*`",
			"keys", vain.Keys, "services", vain.Services, "after", nodes.Patience)
	}
}
