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

// TestUsersAreNotifiedOfReadyNodesThatAreUnreachable: after a minute, once for each node, and with one request per
// round however many are unreachable.
func TestUsersAreNotifiedOfReadyNodesThatAreUnreachable(t *testing.T) {
	start := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	var out []probe.Ejected
	var asked, told []string
	isAway := false
	p := partitionReporter{
		unreachable: func() []probe.Ejected { return out },
		isReady: func(_ context.Context, node string) (bool, error) {
			asked = append(asked, node)
			if isAway {
				return false, errors.New("the API server does not respond")
			}
			return node != "dead", nil
		},
		report: func(node string) { told = append(told, node) },
		log:    slog.New(slog.DiscardHandler),
	}
	round := func(what string, after time.Duration, wantAsked int, wantTold ...string) {
		t.Helper()
		asked, told = nil, nil
		p.checkNext(t.Context(), start.Add(after))
		if len(asked) != wantAsked || !slices.Equal(told, wantTold) {
			t.Errorf("%s: read %q and reported %q, want %d and %q", what, asked, told, wantAsked, wantTold)
		}
	}
	round("no node is unreachable", 0, 0)
	out = []probe.Ejected{ejectedNode("parted", start)}
	round("unreachable for less than a minute", 59*time.Second, 0)
	isAway = true
	round("the API server does not respond", 60*time.Second, 1)
	isAway = false
	round("unreachable for a minute", 90*time.Second, 1, "parted")
	round("already reported", 120*time.Second, 0)
	out = append(out, ejectedNode("dead", start))
	round("one that is not Ready", 150*time.Second, 1)
	round("already read", 180*time.Second, 0)
	out = []probe.Ejected{ejectedNode("parted", start.Add(200*time.Second))}
	round("unreachable again", 230*time.Second, 0)
	round("unreachable again for a minute", 260*time.Second, 1, "parted")
	out = nil
	for _, node := range []string{"a", "b", "c"} {
		out = append(out, ejectedNode(node, start))
	}
	var all []string
	for i := range 3 {
		asked, told = nil, nil
		p.checkNext(t.Context(), start.Add(300*time.Second+time.Duration(i)*partitionInterval))
		if len(asked) != 1 {
			t.Errorf("%d nodes were read at once", len(asked))
		}
		all = append(all, told...)
	}
	if slices.Sort(all); !slices.Equal(all, []string{"a", "b", "c"}) {
		t.Errorf("reported %q", all)
	}
}

func ejectedNode(node string, since time.Time) probe.Ejected {
	return probe.Ejected{EjectedNode: reachability.EjectedNode{Node: node, Since: since}}
}
