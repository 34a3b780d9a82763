package forecast

import (
	"bytes"
	"strings"
	"testing"
)

// TestAdviceOmitsUnchangedValues: values are compared in the precision in which they are printed.
func TestAdviceOmitsUnchangedValues(t *testing.T) {
	projection := func(zone float64) *Projection { return &Projection{Shares: Shares{Zone: zone}} }
	if got := staysInZone(projection(0.671), projection(0.668)); got != "" {
		t.Errorf("got %q for two values that are printed alike, want nothing", got)
	}
	if got, want := staysInZone(projection(0.8), projection(0.67)), "80 % stay in the zone instead of 67 %"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, test := range [][3]string{{"a", "b", "a, and b"}, {"a", "", "a"}, {"", "b", "b"}} {
		if got := joinClauses(test[0], test[1]); got != test[2] {
			t.Errorf("joinClauses(%q, %q) = %q", test[0], test[1], got)
		}
	}
}

// TestAnUnknownZoneIsNotZero: if no zone is known, regions are unknown, too, unless something stays there.
func TestAnUnknownZoneIsNotZero(t *testing.T) {
	for want, shares := range map[string]Shares{
		"now  0 %  -  -  -":          {UnknownZones: 1},
		"now  0 %  -  30 %  -":       {UnknownZones: 1, Region: 0.3},
		"now  0 %  10 %  10 %  90 %": {Zone: 0.1, Region: 0.1, OtherZones: 0.9},
	} {
		var text bytes.Buffer
		p := printer{w: &text}
		report := Report{Nodes: 2, Settings: []Total{{Setting: Now, Shares: shares}}}
		p.totals(&report, []string{"now"}, report.Settings)
		line := strings.Join(strings.Fields(strings.Split(text.String(), "\n")[1]), " ")
		if !strings.HasPrefix(line, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("got line %q, want %q", line, want)
		}
	}
}
