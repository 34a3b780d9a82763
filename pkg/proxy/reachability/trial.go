package reachability

import (
	"slices"
	"time"
)

// Outcome is how a suspicion ended.
type Outcome string

// The outcomes.
const (
	Answered      Outcome = "answered"       // the node answers
	FlowsAnswered Outcome = "flows_answered" // it answers others: dials are dropped on the way
	CutOff        Outcome = "cut_off"        // nobody answers: this node is alone
	Unanswered    Outcome = "unreachable"    // it does not answer, and others do
	Void          Outcome = ""               // nothing is known: begin again
)

// Outcomes are those that are counted.
var Outcomes = []string{string(Answered), string(FlowsAnswered), string(CutOff), string(Unanswered)}

// trial is the time that a suspected node has to answer.
type trial struct {
	began    time.Time
	window   time.Duration
	accusers []pair
	accused  map[pair]bool
	// made is how many dials were made, unanswered how many of them are known to have no answer. One answer ends the
	// trial.
	made, unanswered int
	last             time.Time // when the last dial was made
	// before and after are the node's answered connections, early in the window and after it; nil until they are reported.
	before, after []uint32
	asked         bool // for the next of them
}

// due is when the next dial is to be made.
func (t *trial) due() time.Time {
	if t.made == 0 {
		return t.began
	}
	return t.last.Add(t.window / parts)
}

// wantsDial reports whether the next dial is due.
func (t *trial) wantsDial(now time.Time, r *rules) bool {
	return t.made < r.dials && !now.Before(t.due())
}

// rest is how long the window is from the next dial on. Whatever delays a dial prolongs the window.
func (t *trial) rest() time.Duration { return t.window - time.Duration(t.made)*t.window/parts }

// end is when the window ends, once all dials are made.
func (t *trial) end(r *rules) time.Time {
	return t.last.Add(t.window - time.Duration(r.dials-1)*t.window/parts)
}

// wants reports whether the node's answered connections are wanted now.
func (t *trial) wants(now time.Time, r *rules) bool {
	if !r.flows || t.asked {
		return false
	}
	if t.before == nil {
		return t.made > 1 // and the first dial has no answer yet
	}
	return t.after == nil && t.isOver(now, r)
}

// isOver reports whether all dials have failed.
func (t *trial) isOver(now time.Time, r *rules) bool {
	return t.made >= r.dials && t.unanswered >= t.made && !now.Before(t.end(r))
}

// told takes the node's answered connections.
func (t *trial) told(ids []uint32) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	if ids == nil {
		ids = []uint32{}
	}
	if t.asked = false; t.before == nil {
		t.before = ids
	} else {
		t.after = ids
	}
}

// verdict concludes a trial whose dials have failed. It is told whether others answered a dial that was made no earlier
// than the last dial of this trial.
func (t *trial) verdict(now time.Time, othersAnswered bool, r *rules) (outcome Outcome, isOver bool) {
	switch {
	case now.Sub(t.began) > 3*t.window || now.Before(t.began):
		return Void, true
	case !t.isOver(now, r) || r.flows && t.after == nil:
		return "", false
	case r.flows && t.hasNewAnswer():
		return FlowsAnswered, true
	case r.controls > 0 && !othersAnswered:
		return CutOff, true
	}
	return Unanswered, true
}

// hasNewAnswer reports whether a connection has an answer that had none before.
func (t *trial) hasNewAnswer() bool {
	return slices.ContainsFunc(t.after, func(id uint32) bool {
		_, found := slices.BinarySearch(t.before, id)
		return !found
	})
}

// accuse notes who raised the suspicion.
func (t *trial) accuse(p pair, r *rules) {
	if !t.accused[p] && len(t.accusers) < r.pairs {
		t.accused[p] = true
		t.accusers = append(t.accusers, p)
	}
}
