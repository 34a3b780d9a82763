package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/health"
	"github.com/vicinity-proxy/vicinity/pkg/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/source"
)

// feed hands over what the source says: what changed to the proxy, what was refused to the log, health and metrics.
type feed struct {
	node     string
	changes  chan<- model.Change
	log      *slog.Logger
	status   *health.Status
	recorder *metrics.Recorder

	started  bool
	problems []source.Problem // told already
}

// deliver returns when the proxy has taken the change, so that what arrives meanwhile comes as one change after it. The first
// change is delivered even if it is empty: it is the complete state, and that may be nothing.
func (f *feed) deliver(ctx context.Context, update source.Update) {
	f.tell(update.Problems)
	f.warn(update.Change)
	if f.started && update.Change.IsEmpty() {
		return
	}
	f.started = true
	select {
	case f.changes <- update.Change:
	case <-ctx.Done():
	}
}

// warn logs what a change brings that is not wrong, and hardly meant.
func (f *feed) warn(change model.Change) {
	if node, told := change.Nodes[f.node]; node == nil && (told || !f.started) {
		f.log.Warn("there is no Node of this name; its labels are unknown until there is one", "node", f.node)
	}
	for _, name := range slices.SortedFunc(maps.Keys(change.Services), model.ObjectName.Compare) {
		if service := change.Services[name]; service != nil && service.Topology.Ignored != "" {
			f.log.Warn("an annotation is ignored", "service", name.String(), "annotation", policy.TopologyKeysAnnotation,
				"reason", service.Topology.Ignored)
		}
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
