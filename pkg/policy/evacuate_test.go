package policy

import (
	"testing"
	"time"
)

func TestParseEvacuate(t *testing.T) {
	for value, want := range map[string]struct {
		evacuated bool
		until     time.Time
	}{
		"true": {true, time.Time{}}, "false": {},
		"20261122T1800Z": {true, time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)},
	} {
		evacuated, until, err := ParseEvacuate(value)
		if evacuated != want.evacuated || !until.Equal(want.until) || err != nil {
			t.Errorf("%q: %t until %v, %v", value, evacuated, until, err)
		}
	}
	for _, value := range []string{
		"", "True", "yes", "1", "2026-11-22", "20261122T1800", "20261122T180000Z", "20261322T1800Z", "20261122T1800z", " true",
	} {
		if evacuated, until, err := ParseEvacuate(value); err == nil || evacuated || !until.IsZero() {
			t.Errorf("%q: %t until %v, %v; want an error", value, evacuated, until, err)
		}
	}
}
