package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/health"
	"github.com/vicinity-proxy/vicinity/pkg/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/source"
)

// feed hands over what the sources say: what changed to the proxy, what was refused to the log, health and metrics.
type feed struct {
	node     string
	config   ruleset.Config // how the tables are made
	changes  chan<- model.Change
	log      *slog.Logger
	status   *health.Status
	recorder *metrics.Recorder

	started  bool             // the manifests have been told once
	problems []source.Problem // told already

	// complete is for manifests and interfaces, which are told by goroutines of their own.
	complete completion
}

func newFeed(
	node string, config ruleset.Config, changes chan<- model.Change, log *slog.Logger, status *health.Status, recorder *metrics.Recorder,
) *feed {
	return &feed{node: node, config: config, changes: changes, log: log, status: status, recorder: recorder}
}

// deliver takes what the manifests say. It returns when the proxy has taken the change, so that what arrives meanwhile comes as
// one change after it.
func (f *feed) deliver(ctx context.Context, update source.Update) {
	f.tell(update.Problems)
	f.warn(update.Change)
	f.started = true
	f.send(ctx, fromManifests, update.Change)
}

// deliverAddrs takes all addresses that this machine's interfaces have now, and returns when the proxy has.
func (f *feed) deliverAddrs(ctx context.Context, addrs []netip.Addr) {
	f.send(ctx, fromInterfaces, model.Change{LocalAddrs: addrs})
}

func (f *feed) send(ctx context.Context, from origin, change model.Change) {
	f.complete.Lock()
	defer f.complete.Unlock()
	change, ready := f.complete.add(from, change)
	if !ready {
		return
	}
	select {
	case f.changes <- change:
	case <-ctx.Done():
	}
}

// tell logs what is newly refused and what was put right, and shows what is refused now.
func (f *feed) tell(problems []source.Problem) {
	for _, problem := range problems {
		if !slices.Contains(f.problems, problem) {
			f.log.Warn("left out; its last good version, if there was one, stays in force", "problem", problem.String())
		}
	}
	for _, problem := range f.problems {
		if !slices.Contains(problems, problem) {
			f.log.Info("put right", "problem", problem.String())
		}
	}
	f.problems = problems

	sentences := make([]string, 0, len(problems))
	for _, problem := range problems {
		sentences = append(sentences, problem.String())
	}
	f.status.Problems(sentences)
	f.recorder.ObjectsRefused(refusedByKind(problems))
}

// refusedByKind counts objects: one with several problems counts once. What could not be read as an object is of kind File.
func refusedByKind(problems []source.Problem) map[string]int {
	type object struct{ file, name string }
	counted := map[object]bool{}
	counts := map[string]int{}
	for _, problem := range problems {
		this := object{problem.File, problem.Object}
		if counted[this] {
			continue
		}
		counted[this] = true
		kind, _, _ := strings.Cut(problem.Object, " ")
		if kind == "" {
			kind = "File"
		}
		counts[kind]++
	}
	return counts
}
