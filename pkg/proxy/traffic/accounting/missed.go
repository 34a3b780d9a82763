//go:build linux

package accounting

// Why is the reason why connections are not counted, or not fully.
type Why string

// The reasons.
const (
	LostEnd       Why = "lost_end"
	OtherProgram  Why = "other_program"
	CountersReset Why = "counters_reset"
	NoCounters    Why = "no_counters"
)

// Missed yields the number of connections that were not counted, or not fully, by reason.
func (a *Accounting) Missed(yield func(Why, uint64)) {
	missed := a.Counters.State().Missed
	yield(LostEnd, a.LostEnds())
	yield(OtherProgram, missed.OtherProgram)
	yield(CountersReset, missed.CountersReset)
	yield(NoCounters, missed.NoCounters)
}
