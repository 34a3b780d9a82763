package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability/probe"
)

// TestUsersAreNotifiedOfReadyNodesThatAreUnreachable: there is one Event for each node, after a minute, and one request
// per round however many nodes are unreachable.
func TestUsersAreNotifiedOfReadyNodesThatAreUnreachable(t *testing.T) {
	start := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	var unreachable []probe.Ejected
	var read, reported []string
	isDown := false
	p := partitionReporter{
		unreachable: func() []probe.Ejected { return unreachable },
		isReady: func(_ context.Context, node string) (bool, error) {
			read = append(read, node)
			if isDown {
				return false, errors.New("the API server does not respond")
			}
			return node != "dead", nil
		},
		report: func(node string) { reported = append(reported, node) },
		log:    slog.New(slog.DiscardHandler),
	}
	round := func(what string, after time.Duration, wantRead int, wantReported ...string) {
		t.Helper()
		read, reported = nil, nil
		p.checkNext(t.Context(), start.Add(after))
		if len(read) != wantRead || !slices.Equal(reported, wantReported) {
			t.Errorf("%s: read %q and reported %q, want %d and %q", what, read, reported, wantRead, wantReported)
		}
	}
	round("no node is unreachable", 0, 0)
	unreachable = []probe.Ejected{ejectedNode("partitioned", start)}
	round("unreachable for less than a minute", 59*time.Second, 0)
	isDown = true
	round("the API server does not respond", 60*time.Second, 1)
	isDown = false
	round("unreachable for a minute", 90*time.Second, 1, "partitioned")
	round("already reported", 120*time.Second, 0)
	unreachable = append(unreachable, ejectedNode("dead", start))
	round("one that is not Ready", 150*time.Second, 1)
	round("already read", 180*time.Second, 0)
	unreachable = []probe.Ejected{ejectedNode("partitioned", start.Add(200*time.Second))}
	round("unreachable again", 230*time.Second, 0)
	round("unreachable again for a minute", 260*time.Second, 1, "partitioned")
	unreachable = nil
	for _, node := range []string{"a", "b", "c"} {
		unreachable = append(unreachable, ejectedNode(node, start))
	}
	var all []string
	for i := range 3 {
		read, reported = nil, nil
		p.checkNext(t.Context(), start.Add(300*time.Second+time.Duration(i)*partitionInterval))
		if len(read) != 1 {
			t.Errorf("%d nodes were read at once", len(read))
		}
		all = append(all, reported...)
	}
	if slices.Sort(all); !slices.Equal(all, []string{"a", "b", "c"}) {
		t.Errorf("reported %q, want a, b and c", all)
	}
}

func ejectedNode(node string, since time.Time) probe.Ejected {
	return probe.Ejected{EjectedNode: reachability.EjectedNode{Node: node, Since: since}}
}
