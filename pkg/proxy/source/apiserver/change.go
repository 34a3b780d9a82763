package apiserver

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// change applies a function to the state, unlocks the state, and then signals the affected goroutines.
func (w *Watcher) change(apply func(*state)) {
	for _, signal := range w.applyChange(apply) {
		signal.Notify()
	}
}

// applyChange applies a function to the state and returns the signals to send: there may be an update to deliver, an
// on-demand watch may have become needed or unneeded, or the existence of a node must be checked.
func (w *Watcher) applyChange(apply func(*state)) (signals []notify.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.now = time.Now()
	apply(w.state)
	w.resetTimer()
	if w.state.hasChanges() {
		signals = append(signals, w.updateReady)
	}
	for _, d := range w.onDemand {
		if current := d.interestOf(w.state); current != d.interest {
			d.interest = current
			signals = append(signals, d.interestChanged)
		}
	}
	if w.state.addressesChanged {
		w.state.addressesChanged = false
		signals = append(signals, w.addressesChanged)
	}
	if w.state.nodes.HasPendingChecks() {
		signals = append(signals, w.nodesToCheck)
	}
	return signals
}

// maxTimerDelay bounds the delay of the timer: the end of an evacuation is a date, and the clock may be set.
const maxTimerDelay = time.Minute

// resetTimer sets the timer to the next deadline. The caller holds mu.
func (w *Watcher) resetTimer() {
	at, ok := w.state.next()
	if !ok {
		at = time.Time{}
	}
	if at.Equal(w.timerAt) {
		return
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.timerAt = at; ok {
		w.timer = time.AfterFunc(min(time.Until(at), maxTimerDelay), w.expire)
	}
}

// expire processes the expired deadlines.
func (w *Watcher) expire() {
	var timeouts *nodes.WaitTimeout
	demandTimeouts := 0
	w.change(func(s *state) {
		w.timerAt = time.Time{} // so that the timer is set again
		timeouts, demandTimeouts = s.expire()
	})
	if demandTimeouts > 0 {
		w.options.Log.Warn("timed out reading measured demand; using assumed demand until it is read",
			"services", demandTimeouts, "after", nodes.LabelTimeout)
	}
	if timeouts != nil {
		w.options.Log.Warn("timed out listing other nodes; until it succeeds, endpoints on unknown nodes match only `*`",
			"keys", timeouts.Keys, "services", timeouts.Services, "after", nodes.LabelTimeout)
	}
}
