package demand

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
)

// minCoverage is the fraction of nodes that must report. The alert VicinityDemandNotPublished uses the same number.
const minCoverage = 0.9

// coverage describes whether enough nodes report, or an operator must act.
type coverage string

const (
	coverageFull     coverage = ""
	coverageDegraded coverage = "some proxies did not report; their nodes keep their last demand"
	coverageAssumed  coverage = "some proxies did not report, and some never did; the zones of these have at least the assumed demand"
	coverageLow      coverage = "too few nodes reported; unless more report, published demand expires in " + v1alpha1.DemandFreshForText
)

// coverageOf returns the coverage of a round.
func coverageOf(round Round, errs pull.Errors) coverage {
	switch {
	case float64(round.Reporting) < minCoverage*float64(round.Nodes):
		return coverageLow
	case len(round.Unreported) > 0:
		return coverageAssumed
	case len(errs) > 0:
		return coverageDegraded
	}
	return coverageFull
}

// logCoverage logs a change of coverage, with the error of one node.
func (l *leader) logCoverage(round Round, errs pull.Errors) {
	current := coverageOf(round, errs)
	if current == l.coverage {
		return
	}
	l.coverage = current
	reporting := fmt.Sprintf("%d of %s", round.Reporting, sanitize.Count(round.Nodes, "node"))
	if current == coverageFull {
		l.options.Log.Info("measuring demand: all proxies report", "reporting", reporting)
		return
	}
	l.options.Log.Warn("measuring demand: "+string(current), "reporting", reporting, "failed", len(errs),
		"unreported", len(round.Unreported), "assumedZones", len(round.AssumedZones), "error", errs.Sample())
}
