package demand

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// skewedRound returns a round in which a Service has a given skew.
func skewedRound(skew, perMinute float64) Round {
	report := Report{
		Decision: Decision{Shares: map[string]float64{"zone-b": 0.8, "zone-a": 0.2}, ConnectionsPerMinute: perMinute},
		Assumed:  map[string]float64{"zone-b": 0.3, "zone-a": 0.7}, MaxSkew: skew, MostSkewedZone: "zone-b",
	}
	return Round{Services: map[string]Report{"shop/web": report}}
}

func TestSkewEventIsDueOnceAfterHalfAnHour(t *testing.T) {
	r := skewReporter{minDuration: minSkewDuration}
	minute := 0
	advance := func(minutes int, round Round) (dueAt []int) {
		for range minutes {
			for _, name := range r.due(time.Unix(int64(60*minute), 0), round) {
				dueAt = append(dueAt, minute)
				r.notified[name] = true
			}
			minute++
		}
		return dueAt
	}
	for _, c := range []struct {
		name    string
		minutes int
		round   Round
		want    string
	}{
		{"nearly as assumed", 60, skewedRound(2, 6000), "[]"},
		{"few connections", 60, skewedRound(9, 100), "[]"},
		{"skewed for half an hour: at 120 + 30, and not again", 200, skewedRound(2.7, 6000), "[150]"},
		{"better for a while", 5, skewedRound(1.5, 6000), "[]"},
		{"skewed again: at 325 + 30", 60, skewedRound(2.7, 6000), "[355]"},
		{"the Service is gone", 1, Round{}, "[]"},
	} {
		if got := fmt.Sprint(advance(c.minutes, c.round)); got != c.want {
			t.Errorf("%s: due at minute %s, want %s", c.name, got, c.want)
		}
	}
	if len(r.skewedSince)+len(r.notified) != 0 {
		t.Errorf("state of a deleted Service remains: %v, %v", r.skewedSince, r.notified)
	}
}

func TestSkewEventsPerRoundAreLimited(t *testing.T) {
	round := Round{Services: map[string]Report{}}
	for number := range 25 {
		round.Services[fmt.Sprintf("shop/web-%02d", number)] = skewedRound(3, 6000).Services["shop/web"]
	}
	var r skewReporter
	var counts []int
	for range 4 {
		due := r.due(time.Unix(0, 0), round)
		for _, name := range due {
			r.notified[name] = true
		}
		counts = append(counts, len(due))
	}
	if fmt.Sprint(counts) != "[10 10 5 0]" {
		t.Errorf("due in four rounds: %v, want [10 10 5 0]", counts)
	}
}

func TestEventNote(t *testing.T) {
	const want = "Clients in zone zone-b open 80 % of 6000 new connections per minute, but the load bound assumes 30 %: " +
		"endpoints near them may get 2.7 times what it allows. Fix: list the client Services in vicinity.dev/clients, " +
		"set vicinity.dev/demand-source=measured, or label the Nodes with more clients with vicinity.dev/demand-weight."
	report := skewedRound(2.7, 6000).Services["shop/web"]
	if got := eventNote(report); got != want {
		t.Errorf("note:\n%s\nwant\n%s", got, want)
	}
	report.MostSkewedZone = ""
	if got := eventNote(report); !strings.HasPrefix(got, "Clients on Nodes without a zone open ") {
		t.Errorf("note: %s", got)
	}
}

func TestCoverage(t *testing.T) {
	failed := PullErrors{1, errors.New("timeout")}
	for want, c := range map[coverage]struct {
		round   Round
		silence PullErrors
	}{
		coverageFull:     {Round{Reporting: 10, Nodes: 10}, PullErrors{}},
		coverageDegraded: {Round{Reporting: 9, Nodes: 10}, failed},
		coverageZoneLost: {Round{Reporting: 99, Nodes: 100, ZonesBelowQuorum: []string{"site-7"}}, failed},
		coverageLow:      {Round{Reporting: 8, Nodes: 10, ZonesBelowQuorum: []string{"b"}}, failed},
		coverageNone:     {Round{Reporting: 4, Nodes: 10, NoQuorum: true, ZonesBelowQuorum: []string{"b"}}, failed},
	} {
		if got := coverageOf(c.round, c.silence); got != want {
			t.Errorf("%+v: %q, want %q", c.round, got, want)
		}
	}
}

func TestHasMinCoverage(t *testing.T) {
	for want, rounds := range map[bool][]Round{
		true:  {{Reporting: 10, Nodes: 10}, {Reporting: 9, Nodes: 10}, {Reporting: 99, Nodes: 100, ZonesBelowQuorum: []string{"site-7"}}},
		false: {{}, {Reporting: 8, Nodes: 10}, {Reporting: 4, Nodes: 10, NoQuorum: true}, {Nodes: 10}},
	} {
		for _, round := range rounds {
			if hasMinCoverage(round) != want {
				t.Errorf("hasMinCoverage(%+v) = %t, want %t", round, !want, want)
			}
		}
	}
}
