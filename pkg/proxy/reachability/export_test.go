package reachability

// Without are guards that a test switches off.
type Without struct{ Controls, Flows, Learned, Disbelief bool }

// NewJudgeWithout is NewJudge without guards.
func NewJudgeWithout(own string, without Without) *Judge {
	r := defaults
	r.flows, r.learned = !without.Flows, !without.Learned
	if without.Controls {
		r.controls = 0
	}
	if without.Disbelief {
		r.disbelief, r.longestDisbelief = 0, 0
	}
	return newJudge(own, r)
}

// Remembered is how many pairs that cried wolf are remembered.
func (j *Judge) Remembered() int { return len(j.wolves.recent) + len(j.wolves.earlier) }
