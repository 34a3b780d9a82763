package apiserver_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// follower runs a Watcher and applies its updates, as the proxy does.
type follower struct {
	*apiserver.Watcher
	t    *testing.T
	log  *logs.Log
	busy sync.Mutex // deliver blocks while this is locked

	mu       sync.Mutex
	state    *model.Cluster
	updates  []convert.Update
	problems map[model.Finding]bool // the current ones
	outages  map[string]outage      // the current ones, by resource
}

// outage is a reported outage.
type outage struct {
	since time.Time
	err   error
}

// follow starts a follower for a node with this name. It ends with the test.
func follow(t *testing.T, config *rest.Config, node, proxyName string, edits ...func(*apiserver.Options)) *follower {
	t.Helper()
	f := &follower{
		t: t, log: logs.New(t, "the follower of "+node), state: model.NewCluster(node),
		outages: map[string]outage{}, problems: map[model.Finding]bool{},
	}
	options := apiserver.Options{
		View: convert.View{Node: node, ServiceProxyName: proxyName}, Log: f.log.Logger(),
		OnInterrupted: f.interrupted, OnResumed: f.resumed,
	}
	for _, edit := range edits {
		edit(&options)
	}
	cluster, err := apiserver.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	f.Watcher = cluster
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cluster.Run(ctx, f.deliver) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want nil when the context ends", err)
		}
	})
	return f
}

func (f *follower) deliver(update convert.Update) {
	f.mu.Lock()
	f.updates = append(f.updates, update)
	for _, problem := range update.ResolvedProblems {
		delete(f.problems, problem)
	}
	for _, problem := range update.NewProblems {
		f.problems[problem] = true
	}
	f.state.Apply(update.Change)
	f.mu.Unlock()
	f.busy.Lock()
	defer f.busy.Unlock()
}

func (f *follower) interrupted(resource string, since time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outages[resource] = outage{since, err}
}

func (f *follower) resumed(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.outages, resource)
}

// outagesNow returns the current outages by resource.
func (f *follower) outagesNow() map[string]outage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.outages)
}

// started waits for the first update and returns the follower.
func (f *follower) started() *follower {
	f.t.Helper()
	wait.Until(f.t, "the first update", func() bool { return f.count() > 0 })
	return f
}

// count returns the number of updates.
func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.updates)
}

// since returns all updates except the first count ones.
func (f *follower) since(count int) []convert.Update {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]convert.Update{}, f.updates[count:]...)
}

// waitUntil waits until the delivered state fulfils a condition.
func (f *follower) waitUntil(what string, condition func(state *model.Cluster) bool) {
	f.t.Helper()
	wait.Until(f.t, what, func() bool { return f.holds(condition) })
}

func (f *follower) holds(condition func(state *model.Cluster) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return condition(f.state)
}

// untilProblems waits until the findings of a namespace are exactly these, one per line.
func (f *follower) untilProblems(namespace string, want ...string) {
	f.t.Helper()
	wait.Equal(f.t, "the findings", want, func() (got []string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for problem := range f.problems {
			if problem.Name.Namespace == namespace {
				got = append(got, problem.String())
			}
		}
		slices.Sort(got)
		return got
	})
}
