package demand

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// coverage describes whether enough nodes report, or an operator must act.
type coverage string

const (
	coverageFull     coverage = ""
	coverageDegraded coverage = "some proxies did not report; their nodes count as the mean of their zones"
	coverageZoneLost coverage = "fewer than half of the nodes in a zone reported; keeping the zone's last share"
	coverageLow      coverage = "too few nodes reported" + expiryHint
	coverageNone     coverage = "fewer than half of all nodes reported; not updating the estimate" + expiryHint
)

// expiryHint describes the consequence.
const expiryHint = "; unless more report, published demand expires in " + v1alpha1.DemandFreshForText

// coverageOf returns the coverage of a round.
func coverageOf(round Round, errs PullErrors) coverage {
	switch {
	case round.NoQuorum:
		return coverageNone
	case float64(round.Reporting) < minCoverage*float64(round.Nodes):
		return coverageLow
	case len(round.ZonesBelowQuorum) > 0:
		return coverageZoneLost
	case errs.Nodes > 0:
		return coverageDegraded
	}
	return coverageFull
}

// logCoverage logs a change of coverage, with the error of one node. The first pages only issue cursors and contain no
// counts, so no node counts as missing then.
func (l *leader) logCoverage(round Round, errs PullErrors) {
	if current := coverageOf(round, errs); current != l.coverage && (errs.Nodes > 0 || l.rounds > 1) {
		l.coverage = current
		reporting := fmt.Sprintf("%d of %s", round.Reporting, sanitize.Count(round.Nodes, "node"))
		switch current {
		case coverageFull:
			l.options.Log.Info("measuring demand: all proxies report", "reporting", reporting)
		case coverageZoneLost:
			l.options.Log.Warn("measuring demand: "+string(current), "zone", round.ZonesBelowQuorum[0], "zonesBelowQuorum",
				len(round.ZonesBelowQuorum), "reporting", reporting,
				"error", errs.Sample)
		case coverageDegraded, coverageLow, coverageNone:
			l.options.Log.Warn("measuring demand: "+string(current), "reporting", reporting, "failed", errs.Nodes, "error", errs.Sample)
		}
	}
}
