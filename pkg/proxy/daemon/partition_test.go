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
				return false, errors.New("the API server is away")
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
			t.Errorf("%s: asked for %q and told of %q, want %d and %q", what, asked, told, wantAsked, wantTold)
		}
	}
	round("nobody is silent", 0, 0)
	out = []probe.Ejected{ejectedNode("parted", start)}
	round("not for a minute", 59*time.Second, 0)
	isAway = true
	round("the API server is away", 60*time.Second, 1)
	isAway = false
	round("for a minute", 90*time.Second, 1, "parted")
	round("it is told", 120*time.Second, 0)
	out = append(out, ejectedNode("dead", start))
	round("one that is not Ready", 150*time.Second, 1)
	round("it was asked for", 180*time.Second, 0)
	out = []probe.Ejected{ejectedNode("parted", start.Add(200*time.Second))}
	round("it fell again", 230*time.Second, 0)
	round("for a minute again", 260*time.Second, 1, "parted")
	out = nil
	for _, node := range []string{"a", "b", "c"} {
		out = append(out, ejectedNode(node, start))
	}
	var all []string
	for i := range 3 {
		asked, told = nil, nil
		p.checkNext(t.Context(), start.Add(300*time.Second+time.Duration(i)*partitionInterval))
		if len(asked) != 1 {
			t.Errorf("%d nodes were asked for at once", len(asked))
		}
		all = append(all, told...)
	}
	if slices.Sort(all); !slices.Equal(all, []string{"a", "b", "c"}) {
		t.Errorf("told of %q", all)
	}
}

func ejectedNode(node string, since time.Time) probe.Ejected {
	return probe.Ejected{EjectedNode: reachability.EjectedNode{Node: node, Since: since}}
}
