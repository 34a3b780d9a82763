package demand

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// offBy is a round in which the assumption for a Service is off by a factor.
func offBy(by, perMinute float64) Round {
	report := Report{
		Decision: Decision{Parts: map[string]float64{"zone-b": 0.8, "zone-a": 0.2}, ConnectionsPerMinute: perMinute},
		Assumed:  map[string]float64{"zone-b": 0.3, "zone-a": 0.7}, OffBy: by, Zone: "zone-b",
	}
	return Round{Services: map[string]Report{"shop/web": report}}
}

func TestAnOwnerIsToldOnceAfterHalfAnHour(t *testing.T) {
	a := adviser{after: tellAfter}
	minute := 0
	pass := func(minutes int, round Round) (dueAt []int) {
		for range minutes {
			for _, name := range a.due(time.Unix(int64(60*minute), 0), round) {
				dueAt = append(dueAt, minute)
				a.told[name] = true
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
		{"as assumed, nearly", 60, offBy(2, 6000), "[]"},
		{"few connections", 60, offBy(9, 100), "[]"},
		{"off for half an hour: at 120 + 30, and not again", 200, offBy(2.7, 6000), "[150]"},
		{"better for a while", 5, offBy(1.5, 6000), "[]"},
		{"off again: at 325 + 30", 60, offBy(2.7, 6000), "[355]"},
		{"the Service is gone", 1, Round{}, "[]"},
	} {
		if got := fmt.Sprint(pass(c.minutes, c.round)); got != c.want {
			t.Errorf("%s: told at minute %s, want %s", c.name, got, c.want)
		}
	}
	if len(a.since)+len(a.told) != 0 {
		t.Errorf("of a Service that is gone it is known: %v, %v", a.since, a.told)
	}
}

func TestManyOwnersAreToldInTurns(t *testing.T) {
	round := Round{Services: map[string]Report{}}
	for number := range 25 {
		round.Services[fmt.Sprintf("shop/web-%02d", number)] = offBy(3, 6000).Services["shop/web"]
	}
	var a adviser
	var told []int
	for range 4 {
		due := a.due(time.Unix(0, 0), round)
		for _, name := range due {
			a.told[name] = true
		}
		told = append(told, len(due))
	}
	if fmt.Sprint(told) != "[10 10 5 0]" {
		t.Errorf("%v are told in four rounds", told)
	}
}

func TestTheAdviceSaysWhatIsWrongAndWhatToWrite(t *testing.T) {
	const want = "Clients in zone zone-b make 80 % of the 6000 new connections a minute, and the bound on load is planned for 30 %: " +
		"endpoints near them may get 2.7 times what it allows. Name the clients with the annotation vicinity.dev/clients, or " +
		"set vicinity.dev/demand-source=measured; or label the Nodes that ask more with vicinity.dev/demand-weight."
	report := offBy(2.7, 6000).Services["shop/web"]
	if got := advice(report); got != want {
		t.Errorf("the advice is\n%s\nwant\n%s", got, want)
	}
	report.Zone = ""
	if got := advice(report); !strings.HasPrefix(got, "Clients on Nodes without a zone make ") {
		t.Errorf("the advice is %s", got)
	}
}

func TestHowManyNodesAreHeard(t *testing.T) {
	silent := Silence{1, errors.New("no answer")}
	for want, c := range map[hearing]struct {
		round   Round
		silence Silence
	}{
		hearsAll:  {Round{Heard: 10, Nodes: 10}, Silence{}},
		hearsMost: {Round{Heard: 9, Nodes: 10}, silent},
		hearsPart: {Round{Heard: 99, Nodes: 100, Silent: []string{"site-7"}}, silent},
		hearsFew:  {Round{Heard: 8, Nodes: 10, Silent: []string{"b"}}, silent},
		paused:    {Round{Heard: 4, Nodes: 10, IsPaused: true, Silent: []string{"b"}}, silent},
	} {
		if got := hearingOf(c.round, c.silence); got != want {
			t.Errorf("%+v: %q, want %q", c.round, got, want)
		}
	}
}

func TestWhenThePublishedDemandIsConfirmed(t *testing.T) {
	for want, rounds := range map[bool][]Round{
		true:  {{Heard: 10, Nodes: 10}, {Heard: 9, Nodes: 10}, {Heard: 99, Nodes: 100, Silent: []string{"site-7"}}},
		false: {{}, {Heard: 8, Nodes: 10}, {Heard: 4, Nodes: 10, IsPaused: true}, {Nodes: 10}},
	} {
		for _, round := range rounds {
			if hearsEnough(round) != want {
				t.Errorf("%+v: confirmed: %t, want %t", round, !want, want)
			}
		}
	}
}
