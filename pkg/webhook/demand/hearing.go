package demand

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// hearing is whether enough nodes are heard, or an operator has to act.
type hearing string

const (
	hearsAll  hearing = ""
	hearsMost hearing = "some proxies do not answer; their nodes count as the mean of their zones"
	hearsPart hearing = "less than half of a zone's nodes are heard; the zone keeps its part of what is asked"
	hearsFew  hearing = "too few nodes are heard" + unlessItEnds
	paused    hearing = "nothing new is known: less than half of all nodes are heard" + unlessItEnds
)

// unlessItEnds is what comes of it.
const unlessItEnds = "; unless that ends, what is published no longer counts in " + servicedemand.GoodForWords

// hearingOf judges a round.
func hearingOf(round Round, silence Silence) hearing {
	switch {
	case round.IsPaused:
		return paused
	case float64(round.Heard) < heardEnough*float64(round.Nodes):
		return hearsFew
	case len(round.Silent) > 0:
		return hearsPart
	case silence.Nodes > 0:
		return hearsMost
	}
	return hearsAll
}

// tellHearing logs a change in how many nodes are heard, with the reason for one silent node. The first answers only
// hand out cursors, and say nothing about demand: no node counts as silent then.
func (l *leader) tellHearing(round Round, silence Silence) {
	if now := hearingOf(round, silence); now != l.hearing && (silence.Nodes > 0 || l.measured > 1) {
		l.hearing = now
		heard := fmt.Sprintf("%d of %s", round.Heard, printable.Count(round.Nodes, "node"))
		switch now {
		case hearsAll:
			l.options.Log.Info("measuring demand: all proxies answer", "heard", heard)
		case hearsPart:
			l.options.Log.Warn("measuring demand: "+string(now), "zone", round.Silent[0], "zonesBelowQuorum", len(round.Silent), "heard", heard,
				"error", silence.Why)
		case hearsMost, hearsFew, paused:
			l.options.Log.Warn("measuring demand: "+string(now), "heard", heard, "silent", silence.Nodes, "error", silence.Why)
		}
	}
}
