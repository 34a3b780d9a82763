package sysctl

import "time"

// Setting is a DesiredValue that must stay met.
type Setting struct {
	DesiredValue
	// Without describes what does not work while the kernel has another value; empty if the name suffices.
	Without string
	// OnlyChecked is set if the setting is never written, because it is up to the administrator.
	OnlyChecked bool
	// Optional is set if a kernel that lacks the setting does not need it.
	Optional bool
	// Otherwise sets the value if the file may not be written; nil if there is no other way.
	Otherwise func() error
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
	h := &Enforcer{root: root}
	for _, setting := range settings {
		h.settings = append(h.settings, enforced{State: State{Setting: setting}})
	}
	return h
}

// Reconcile compares all settings with the kernel's, in their order, and writes those that differ. It returns those
// that the caller should log.
func (h *Enforcer) Reconcile(now time.Time) []State {
	var news []State
	for i := range h.settings {
		if s := &h.settings[i]; s.reconcile(h.root, now) {
			news = append(news, s.State)
		}
	}
	return news
}

// reconcile reports whether the state should be logged.
func (s *enforced) reconcile(root string, now time.Time) (isNew bool) {
	before := s.Result.Outcome
	s.Result = s.Setting.apply(root)
	outcome := s.Result.Outcome
	switch {
	case outcome != Unmet:
		s.UnmetSince = time.Time{}
	case s.UnmetSince.IsZero():
		s.UnmetSince = now
	}
	switch {
	case outcome == Written && (before == Met || before == Written):
		s.Restored, s.RestoredAt = s.Restored+1, now
		if isNew = s.loggedAt.IsZero() || now.Sub(s.loggedAt) >= logInterval; isNew {
			s.loggedAt = now
		}
	case outcome == before, outcome == Missing && s.Setting.Optional:
	default:
		isNew = outcome != Met || before == Unmet
	}
	return isNew
}

func (s *Setting) apply(root string) Result {
	result := check(root, s.DesiredValue)
	if result.Outcome != Unmet || result.Err != nil || s.OnlyChecked {
		return result
	}
	result.write(root)
	if result.Outcome == Unmet && s.Otherwise != nil {
		if err := s.Otherwise(); err == nil && check(root, s.DesiredValue).Outcome == Met {
			result.Outcome, result.Err = Written, nil
		}
	}
	return result
}

// States returns all settings at the latest check.
func (h *Enforcer) States() []State {
	states := make([]State, 0, len(h.settings))
	for i := range h.settings {
		states = append(states, h.settings[i].State)
	}
	return states
}
