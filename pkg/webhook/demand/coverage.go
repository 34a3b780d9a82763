package demand

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// coverage describes whether enough nodes report, or an operator must act.
type coverage string

const (
	coverageFull     coverage = ""
	coverageDegraded coverage = "some proxies do not answer; their nodes count as the mean of their zones"
	coverageZoneLost coverage = "less than half of a zone's nodes are heard; the zone keeps its part of what is asked"
	coverageLow      coverage = "too few nodes are heard" + unlessItEnds
	coverageNone     coverage = "nothing new is known: less than half of all nodes are heard" + unlessItEnds
)

// unlessItEnds describes the consequence.
const unlessItEnds = "; unless that ends, what is published no longer counts in " + servicedemand.FreshForText

// coverageOf returns the coverage of a round.
func coverageOf(round Round, silence PullErrors) coverage {
	switch {
	case round.NoQuorum:
		return coverageNone
	case float64(round.Reporting) < minCoverage*float64(round.Nodes):
		return coverageLow
	case len(round.ZonesBelowQuorum) > 0:
		return coverageZoneLost
	case silence.Nodes > 0:
		return coverageDegraded
	}
	return coverageFull
}

// logCoverage logs a change of coverage, with the error of one node. The first pages only issue cursors and contain no
// counts, so no node counts as missing then.
func (l *leader) logCoverage(round Round, silence PullErrors) {
	if now := coverageOf(round, silence); now != l.coverage && (silence.Nodes > 0 || l.rounds > 1) {
		l.coverage = now
		reporting := fmt.Sprintf("%d of %s", round.Reporting, sanitize.Count(round.Nodes, "node"))
		switch now {
		case coverageFull:
			l.options.Log.Info("measuring demand: all proxies answer", "heard", reporting)
		case coverageZoneLost:
			l.options.Log.Warn("measuring demand: "+string(now), "zone", round.ZonesBelowQuorum[0], "zonesBelowQuorum",
				len(round.ZonesBelowQuorum), "heard", reporting,
				"error", silence.Sample)
		case coverageDegraded, coverageLow, coverageNone:
			l.options.Log.Warn("measuring demand: "+string(now), "heard", reporting, "silent", silence.Nodes, "error", silence.Sample)
		}
	}
}
