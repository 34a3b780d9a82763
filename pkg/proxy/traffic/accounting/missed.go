//go:build linux

package accounting

// MissReason is the reason why connections are not counted, or not fully.
type MissReason string

// The reasons.
const (
	LostEnd       MissReason = "lost_end"
	OtherProgram  MissReason = "other_program"
	CountersReset MissReason = "counters_reset"
	NoCounters    MissReason = "no_counters"
)

// Missed yields the number of connections that were not counted, or not fully, by reason.
func (a *Accounting) Missed(yield func(MissReason, uint64)) {
	missed := a.Counters.State().Missed
	yield(LostEnd, a.LostEvents())
	yield(OtherProgram, missed.OtherProgram)
	yield(CountersReset, missed.CountersReset)
	yield(NoCounters, missed.NoCounters)
}
