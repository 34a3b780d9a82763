package sysctl

import "time"

// Setting is a DesiredValue that must stay met.
type Setting struct {
	DesiredValue
	// Impact describes what does not work while the kernel has another value; empty if the name suffices.
	Impact string
	// CheckOnly is set if the setting is never written, because it is up to the administrator.
	CheckOnly bool
	// Optional is set if a kernel that lacks the setting does not need it.
	Optional bool
	// Fallback sets the value if the file may not be written; nil if there is no other way.
	Fallback func() error
}

// Enforcer checks settings periodically, because other programs reset them, for example with sysctl --system.
//
// A changed setting is written again at each check, and at no other time. If a program keeps changing it, that is
// reported once per logInterval.
type Enforcer struct {
	root     string
	settings []enforced
}

// enforced is a setting, and its state.
type enforced struct {
	State
	loggedAt time.Time // when it was last reported as restored
}

// State is a setting at the latest check.
type State struct {
	Setting Setting
	Result  Result
	// UnmetSince is since when the kernel has had another value; zero if it does not.
	UnmetSince time.Time
	// Restored is how often another program changed it, and RestoredAt when it was last written again.
	Restored   int
	RestoredAt time.Time
}

// logInterval is the minimum time between two reports that a setting was restored.
const logInterval = time.Hour

// NewEnforcer returns an enforcer of settings below a root, /proc/sys. None is checked yet.
func NewEnforcer(root string, settings ...Setting) *Enforcer {
	e := &Enforcer{root: root}
	for _, setting := range settings {
		e.settings = append(e.settings, enforced{State: State{Setting: setting}})
	}
	return e
}

// Reconcile compares all settings with the kernel's, in their order, and writes those that differ. It returns those
// that the caller should log.
func (e *Enforcer) Reconcile(now time.Time) []State {
	var changed []State
	for i := range e.settings {
		if s := &e.settings[i]; s.reconcile(e.root, now) {
			changed = append(changed, s.State)
		}
	}
	return changed
}

// reconcile compares the setting with the kernel's, writes it if it differs, and reports whether the state should be
// logged.
func (e *enforced) reconcile(root string, now time.Time) (shouldLog bool) {
	previous := e.Result.Outcome
	e.Result = e.Setting.apply(root)
	outcome := e.Result.Outcome
	switch {
	case outcome != Unmet:
		e.UnmetSince = time.Time{}
	case e.UnmetSince.IsZero():
		e.UnmetSince = now
	}
	switch {
	case outcome == Written && (previous == Met || previous == Written):
		e.Restored, e.RestoredAt = e.Restored+1, now
		if shouldLog = e.loggedAt.IsZero() || now.Sub(e.loggedAt) >= logInterval; shouldLog {
			e.loggedAt = now
		}
	case outcome == previous, outcome == Missing && e.Setting.Optional:
	default:
		shouldLog = outcome != Met || previous == Unmet
	}
	return shouldLog
}

func (s *Setting) apply(root string) Result {
	result := check(root, s.DesiredValue)
	if result.Outcome != Unmet || result.Err != nil || s.CheckOnly {
		return result
	}
	result.write(root)
	if result.Outcome == Unmet && s.Fallback != nil {
		if err := s.Fallback(); err == nil && check(root, s.DesiredValue).Outcome == Met {
			result.Outcome, result.Err = Written, nil
		}
	}
	return result
}

// States returns all settings at the latest check.
func (e *Enforcer) States() []State {
	states := make([]State, 0, len(e.settings))
	for i := range e.settings {
		states = append(states, e.settings[i].State)
	}
	return states
}
