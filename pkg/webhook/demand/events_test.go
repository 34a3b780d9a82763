package demand

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/overload"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
)

// skewed returns the problems of some Services.
func skewed(names ...string) []problem {
	var problems []problem
	for _, name := range names {
		problems = append(problems, skewProblem(service(name, "1"), Report{}))
	}
	return problems
}

func TestEventIsDueOnceAfterHalfAnHour(t *testing.T) {
	w := eventWriter{minDuration: minProblemDuration}
	minute := 0
	advance := func(minutes int, current []problem) (dueAt []int) {
		for range minutes {
			for _, p := range w.due(time.Unix(int64(60*minute), 0), current) {
				dueAt = append(dueAt, minute)
				w.notified[p.key()] = true
			}
			minute++
		}
		return dueAt
	}
	for _, c := range []struct {
		name    string
		minutes int
		current []problem
		want    string
	}{
		{"no problem", 60, nil, "[]"},
		{"for half an hour: at 60 + 30, and not again", 200, skewed("web"), "[90]"},
		{"better for a while", 5, nil, "[]"},
		{"again: at 265 + 30", 35, skewed("web"), "[295]"},
		{"another one as well: at 300 + 30", 60, append(skewed("web"), unreportedProblem("web", nil)), "[330]"},
		{"all are gone", 1, nil, "[]"},
	} {
		if got := fmt.Sprint(advance(c.minutes, c.current)); got != c.want {
			t.Errorf("%s: due at minute %s, want %s", c.name, got, c.want)
		}
	}
	if len(w.since)+len(w.notified) != 0 {
		t.Errorf("state of former problems remains: %v, %v", w.since, w.notified)
	}
}

func TestEventsPerRoundAreLimited(t *testing.T) {
	var current []problem
	for number := range 25 {
		current = append(current, skewed(fmt.Sprintf("web-%02d", number))...)
	}
	var w eventWriter
	var counts []int
	for range 4 {
		due := w.due(time.Unix(0, 0), current)
		for _, p := range due {
			w.notified[p.key()] = true
		}
		counts = append(counts, len(due))
	}
	if fmt.Sprint(counts) != "[10 10 5 0]" {
		t.Errorf("due in four rounds: %v, want [10 10 5 0]", counts)
	}
}

// TestWrittenEvents also checks that a rejected Event is written in the next round.
func TestWrittenEvents(t *testing.T) {
	api, rejections := fake.NewClientset(), 1
	api.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		rejections--
		return rejections >= 0, nil, errors.New("rejected by quota")
	})
	w := eventWriter{events: api.EventsV1(), identity: "one"}
	current := append(skewed("web"), unreportedProblem("node-a", errors.New("timeout")))
	err := w.write(t.Context(), midnight, current)
	if err == nil || !strings.Contains(err.Error(), "write an Event on Service shop/web: rejected by quota") {
		t.Errorf("error %v, want that of the first Event", err)
	}
	must.Succeed(t, w.write(t.Context(), midnight, current))
	must.Succeed(t, w.write(t.Context(), midnight, current))
	var got []string
	for _, action := range api.Actions() {
		event := action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
		got = append(got, event.Namespace+" "+event.Reason+" "+event.Regarding.Kind+" "+event.Regarding.Name+" "+string(event.Regarding.UID))
	}
	want := []string{"shop DemandSkew Service web 1", "default DemandUnreported Node node-a node-a", "shop DemandSkew Service web 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

func TestEventNotes(t *testing.T) {
	report := Report{
		Decision: Decision{Shares: map[string]float64{"zone-b": 0.8, "zone-a": 0.2}, ConnectionsPerMinute: 6000},
		Assumed:  map[string]float64{"zone-b": 0.3, "zone-a": 0.7}, MostSkewedZone: "zone-b",
		Overload: overload.Result{Load: 2.7, Limit: 1.2, Zone: "zone-b"},
	}
	const want = "Clients in zone zone-b open 80 % of 6000 new connections per minute, but the load bound assumes 30 %: planned with " +
		"that, endpoints in zone zone-b get 2.70 times the mean, and the bound allows 1.20. Fix: list the client Services in " +
		"vicinity.dev/clients, set vicinity.dev/demand-source=measured, or label the Nodes with more clients with " +
		"vicinity.dev/demand-weight."
	if got := skewProblem(service("web", "1"), report).note; got != want {
		t.Errorf("note:\n%s\nwant\n%s", got, want)
	}
	report.MostSkewedZone = ""
	if got := skewProblem(service("web", "1"), report).note; !strings.HasPrefix(got, "Clients on Nodes without a zone open ") {
		t.Errorf("note: %s", got)
	}
	got := unreportedProblem("node-a", errors.New(strings.Repeat("é", 1000))).note
	if !strings.HasPrefix(got, "The proxy of this Node never reported the demand of its clients: ééé") || len(got) > 1024 {
		t.Errorf("the note has %d bytes, and the API server accepts 1024: %s", len(got), got)
	}
}

func TestCoverage(t *testing.T) {
	failed := pull.Errors{"a": errors.New("timeout")}
	for want, c := range map[coverage]struct {
		round Round
		errs  pull.Errors
	}{
		coverageFull:     {Round{Reporting: 10, Nodes: 10}, nil},
		coverageDegraded: {Round{Reporting: 9, Nodes: 10}, failed},
		coverageAssumed:  {Round{Reporting: 99, Nodes: 100, Unreported: []string{"a"}}, failed},
		coverageLow:      {Round{Reporting: 8, Nodes: 10, Unreported: []string{"a"}}, failed},
	} {
		if got := coverageOf(c.round, c.errs); got != want {
			t.Errorf("%+v: %q, want %q", c.round, got, want)
		}
	}
}

func TestHasMinCoverage(t *testing.T) {
	for want, rounds := range map[bool][]Round{
		true:  {{Reporting: 10, Nodes: 10}, {Reporting: 9, Nodes: 10}, {Reporting: 99, Nodes: 100, Unreported: []string{"a"}}},
		false: {{}, {Reporting: 8, Nodes: 10}, {Nodes: 10}},
	} {
		for _, round := range rounds {
			if hasMinCoverage(round) != want {
				t.Errorf("hasMinCoverage(%+v) = %t, want %t", round, !want, want)
			}
		}
	}
}
