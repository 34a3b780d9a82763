package sysctl

import "time"

// Setting is a Want that has to stay met.
type Setting struct {
	DesiredValue
	// Without says what does not work while the kernel has another value; empty if the name says enough.
	Without string
	// OnlyChecked: it is never written, because it is up to the administrator.
	OnlyChecked bool
	// Optional: a kernel that lacks it does not need it.
	Optional bool
	// Otherwise gives the setting its value where the file may not be written; nil if nothing else does.
	Otherwise func() error
}

// Enforcer are settings that are looked at again and again: sysctl --system of any other program sets them back.
//
// What somebody changes is set again at each look. A program that insists on another value is not fought harder than
// that, and is told of once in saidAgain.
type Enforcer struct {
	root     string
	settings []enforced
}

// enforced is a setting, and what became of it.
type enforced struct {
	State
	loggedAt time.Time // when it was last said that it was restored
}

// State is how a setting was at the last look.
type State struct {
	Setting Setting
	Result  Result
	// UnmetSince is since when the kernel has another value; zero if it does not.
	UnmetSince time.Time
	// Restored is how often somebody changed it, and RestoredAt when it was last written again.
	Restored   int
	RestoredAt time.Time
}

// logInterval is how long it is not said again that a setting was restored.
const logInterval = time.Hour

// NewEnforcer returns settings below a root, /proc/sys, that nobody has looked at yet.
func NewEnforcer(root string, settings ...Setting) *Enforcer {
	h := &Enforcer{root: root}
	for _, setting := range settings {
		h.settings = append(h.settings, enforced{State: State{Setting: setting}})
	}
	return h
}

// Reconcile compares all settings with the kernel's, in their order, and writes those that differ. It returns those of which
// there is something new, worth a line in a log.
func (h *Enforcer) Reconcile(now time.Time) []State {
	var news []State
	for i := range h.settings {
		if s := &h.settings[i]; s.reconcile(h.root, now) {
			news = append(news, s.State)
		}
	}
	return news
}

// reconcile reports whether there is something new.
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

// States returns all settings as they were at the last look.
func (h *Enforcer) States() []State {
	states := make([]State, 0, len(h.settings))
	for i := range h.settings {
		states = append(states, h.settings[i].State)
	}
	return states
}
