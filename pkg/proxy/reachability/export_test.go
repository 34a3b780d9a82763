package reachability

// Without are guards that a test switches off.
type Without struct{ Controls, Replied bool }

// NewDetectorWithout is NewDetector without guards.
func NewDetectorWithout(self string, without Without) *Detector {
	c := defaults
	c.replied = !without.Replied
	if without.Controls {
		c.controls = 0
	}
	return newDetector(self, 10256, NewBudget(), c)
}
