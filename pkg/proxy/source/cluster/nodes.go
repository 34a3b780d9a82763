package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// otherNodes is the resource of the other nodes in messages and outages.
const otherNodes = "nodes"

// watchNodes watches the node sets that the state wants, and lets it know the time when something is due, until the context ends.
func (c *Cluster) watchNodes(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	stops := map[*nodeSet]func(){} // of the sets that are watched
	for {
		due, stopTimer := c.passTime()
		wanted := c.wantedNodes()
		for set, stop := range stops {
			if _, goesOn := wanted[set]; !goesOn {
				stop()
				delete(stops, set)
			}
		}
		for set, keys := range wanted {
			if stops[set] == nil {
				stops[set] = c.watchNodeSet(ctx, &running, set, keys)
			}
		}
		select {
		case <-ctx.Done():
		case <-c.rewatch:
		case <-due:
		}
		stopTimer()
		if ctx.Err() != nil {
			return
		}
	}
}

// passTime lets the state decide what is due now, says what that means to Services, and returns a channel that tells when something is
// due next.
func (c *Cluster) passTime() (due <-chan time.Time, stop func()) {
	var ended ended
	var next time.Time
	c.change(func(s *state) { ended, next = s.pass(c.pace) })
	if ended.services > 0 || ended.overdue != nil {
		c.options.Log.Warn("the other nodes could not be listed in time; to Services that wait for it, endpoints on unknown nodes match only `*`",
			"keys", slices.Sorted(maps.Keys(ended.overdue)), "services", ended.services, "after", c.pace.patience)
	}
	if next.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(next))
	return timer.C, func() { timer.Stop() }
}

// wantedNodes returns the node sets to watch, and the keys of each as they are now.
func (c *Cluster) wantedNodes() map[*nodeSet]keySet {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := map[*nodeSet]keySet{}
	for _, set := range c.state.nodeSets() {
		wanted[set] = maps.Clone(set.keys)
	}
	return wanted
}

// watchNodeSet begins to list and watch the other nodes, until the context ends or stop is called, and to wait in running for the
// complete list.
func (c *Cluster) watchNodeSet(ctx context.Context, running *sync.WaitGroup, set *nodeSet, keys keySet) (stop func()) {
	handler := serialized(c,
		func(s *state, _, now *object[*model.Node]) { s.putNode(set, now) },
		func(s *state, name model.ObjectName) { s.nodeGone(set, name) })
	informer, err := c.newInformer(otherNodes, c.resources.otherNodes, &metav1.PartialObjectMetadata{}, stripMetadata(keys), handler)
	if err != nil {
		c.options.Log.Error("other nodes are not followed; their labels are unknown", "error", err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	informer.follow(ctx)
	running.Go(func() {
		if informer.await(ctx) {
			c.change(func(s *state) { s.listed(set) })
		}
	})
	return func() {
		cancel()
		c.outages.forget(informer.stream)
	}
}
