//go:build linux

package accounting

import (
	"context"
	"log/slog"
	"time"
)

// Why is why connections are not counted, or not wholly.
type Why string

// The reasons.
const (
	LostEnd       Why = "lost_end"
	OtherProgram  Why = "other_program"
	CountersReset Why = "counters_reset"
	NoCounters    Why = "no_counters"
)

// Missed yields how many connections were not counted, or not wholly, by the reason.
func (a *Accounting) Missed(yield func(Why, uint64)) {
	missed := a.Ledger.State().Missed
	yield(LostEnd, a.LostEnds())
	yield(OtherProgram, missed.OtherProgram)
	yield(CountersReset, missed.CountersReset)
	yield(NoCounters, missed.NoCounters)
}

// sentences are what is logged of a reason. Connections of other programs are none of our business.
var sentences = map[Why]string{
	LostEnd: "ends of connections came faster than they were read: connections of this node are not counted, those that went to no " +
		"Service among them",
	CountersReset: "another program sets conntrack's counters to zero, as conntrack -z does: bytes of connections are not counted",
	NoCounters:    "connections are counted without their bytes: net.netfilter.nf_conntrack_acct was off when they began",
}

// missedAgain is how long a reason is not logged again: it may go on for days.
const missedAgain = time.Hour

// report is what was logged of a reason.
type report struct {
	number uint64
	at     time.Time
	isDue  bool
}

// isToBeLogged reports whether a number is logged: when it has grown, a moment later, for it may grow on.
func (r *report) isToBeLogged(number uint64, now time.Time) bool {
	switch {
	case number == r.number, !r.at.IsZero() && now.Sub(r.at) < missedAgain:
		return false
	case !r.isDue:
		r.isDue = true
		return false
	}
	return true
}

// reportMissed logs what is missed, until ctx ends.
func (a *Accounting) reportMissed(ctx context.Context) {
	again := time.NewTicker(missedEvery)
	defer again.Stop()
	reports := map[Why]*report{}
	for why := range sentences {
		reports[why] = &report{}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		a.Missed(func(why Why, number uint64) {
			last := reports[why]
			if now := time.Now(); last != nil && last.isToBeLogged(number, now) {
				a.log.Warn(sentences[why], slog.String("reason", string(why)), slog.Uint64("connections", number-last.number))
				*last = report{number: number, at: now}
			}
		})
	}
}
