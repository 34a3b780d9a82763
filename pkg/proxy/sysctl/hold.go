package sysctl

import "time"

// Setting is a Want that has to stay met.
type Setting struct {
	Want
	// Without says what does not work while the kernel has another value; empty if the name says enough.
	Without string
	// OnlyChecked: it is never written, because it is up to the administrator.
	OnlyChecked bool
	// Optional: a kernel that lacks it does not need it.
	Optional bool
	// Otherwise gives the setting its value where the file may not be written; nil if nothing else does.
	Otherwise func() error
}

// Held are settings that are looked at again and again: sysctl --system of any other program sets them back.
//
// What somebody changes is set again at each look. A program that insists on another value is not fought harder than
// that, and is told of once in saidAgain.
type Held struct {
	root     string
	settings []held
}

// held is a setting, and what became of it.
type held struct {
	Setting
	last      Result
	restored  int
	unmet     time.Time // since when; zero if it is not
	lastWrite time.Time // of the last time that it was restored
	said      time.Time // when it was last said that it was
}

// saidAgain is how long it is not said again that a setting was restored.
const saidAgain = time.Hour

// NewHeld returns settings below a root, /proc/sys, that nobody has looked at yet.
func NewHeld(root string, settings ...Setting) *Held {
	h := &Held{root: root}
	for _, setting := range settings {
		h.settings = append(h.settings, held{Setting: setting})
	}
	return h
}

// News is what a look found out about a setting, and is worth a line in a log.
type News struct {
	Setting Setting
	Result  Result
	// Restored is how often somebody has changed the setting back and it was written again, if that is the news; else 0.
	Restored int
}

// Look compares all settings with the kernel's, in their order, and writes those that differ. It returns what is new.
func (h *Held) Look(now time.Time) []News {
	var news []News
	for i := range h.settings {
		s := &h.settings[i]
		if isNew, isRestored := s.look(h.root, now); isRestored && isNew {
			news = append(news, News{s.Setting, s.last, s.restored})
		} else if isNew {
			news = append(news, News{s.Setting, s.last, 0})
		}
	}
	return news
}

// look reports whether there is something new, and whether it set again what somebody changed.
func (s *held) look(root string, now time.Time) (isNew, isRestored bool) {
	before := s.last.Outcome
	s.last = s.apply(root)
	outcome := s.last.Outcome
	if isRestored = outcome == Written && (before == Met || before == Written); isRestored {
		s.restored, s.lastWrite = s.restored+1, now
	}
	switch {
	case outcome != Unmet:
		s.unmet = time.Time{}
	case s.unmet.IsZero():
		s.unmet = now
	}
	switch {
	case isRestored:
		if isNew = s.said.IsZero() || now.Sub(s.said) >= saidAgain; isNew {
			s.said = now
		}
	case outcome == before, outcome == Missing && s.Optional:
	default:
		isNew = outcome != Met || before == Unmet
	}
	return isNew, isRestored
}

func (s *held) apply(root string) Result {
	result := check(root, s.Want)
	if result.Outcome != Unmet || result.Err != nil || s.OnlyChecked {
		return result
	}
	result.write(root)
	if result.Outcome == Unmet && s.Otherwise != nil {
		if err := s.Otherwise(); err == nil && check(root, s.Want).Outcome == Met {
			result.Outcome, result.Err = Written, nil
		}
	}
	return result
}

// State is how a setting is.
type State struct {
	Setting Setting
	Result  Result
	// UnmetSince is since when the kernel has another value; zero if it does not.
	UnmetSince time.Time
	// Restored is how often somebody changed it, and RestoredAt when it was last written again.
	Restored   int
	RestoredAt time.Time
}

// States returns all settings as they were at the last look.
func (h *Held) States() []State {
	states := make([]State, 0, len(h.settings))
	for _, s := range h.settings {
		states = append(states, State{s.Setting, s.last, s.unmet, s.restored, s.lastWrite})
	}
	return states
}
