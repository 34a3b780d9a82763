package demand

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// coverage is whether enough nodes are heard, or an operator has to act.
type coverage string

const (
	coverageFull     coverage = ""
	coverageDegraded coverage = "some proxies do not answer; their nodes count as the mean of their zones"
	coverageZoneLost coverage = "less than half of a zone's nodes are heard; the zone keeps its part of what is asked"
	coverageLow      coverage = "too few nodes are heard" + unlessItEnds
	coverageNone     coverage = "nothing new is known: less than half of all nodes are heard" + unlessItEnds
)

// unlessItEnds is what comes of it.
const unlessItEnds = "; unless that ends, what is published no longer counts in " + servicedemand.FreshForText

// coverageOf judges a round.
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

// logCoverage logs a change in how many nodes are heard, with the reason for one silent node. The first answers only
// hand out cursors, and say nothing about demand: no node counts as silent then.
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
