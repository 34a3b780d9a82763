package policy

import (
	"reflect"
	"testing"
	"time"
)

func TestParseEvacuate(t *testing.T) {
	for value, want := range map[string]struct {
		evacuated bool
		until     *time.Time
	}{
		"true": {true, nil}, "True": {true, nil}, "TRUE": {true, nil}, "false": {}, "False": {},
		"20261122T1800Z": {true, new(time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC))},
		"00010101T0000Z": {true, &time.Time{}}, // a valid end
	} {
		evacuated, until, err := ParseEvacuate(value)
		if evacuated != want.evacuated || !reflect.DeepEqual(until, want.until) || err != nil {
			t.Errorf("%q: %t until %v, %v", value, evacuated, until, err)
		}
	}
	for _, value := range []string{
		"", "yes", "falſe", "1", "2026-11-22", "20261122T1800", "20261122T180000Z", "20261322T1800Z", "20261122T1800z", " true",
	} {
		if evacuated, until, err := ParseEvacuate(value); err == nil || evacuated || until != nil {
			t.Errorf("%q: %t until %v, %v; want an error", value, evacuated, until, err)
		}
	}
}
