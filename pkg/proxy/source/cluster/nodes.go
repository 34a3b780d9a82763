package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// otherNodes is the resource of the other nodes in messages and outages.
const otherNodes = "nodes"

// evacuatedNodes is the resource of the nodes that are being evacuated, likewise.
const evacuatedNodes = "nodes/evacuated"

// How long the other nodes are waited for, and followed.
//
// nodePatience is how long Services wait at most for the labels of the other nodes, from when those are asked for.
// Usually it takes less than a second. If the list does not come at all, because the proxy lacks the permission to
// list nodes, waiting would keep every change of those Services from their clients, and at the start every Service. So
// after this time they are served with what is known: an endpoint on an unknown node matches only `*`.
//
// nodeLinger is how long the other nodes are followed after the last Service that needs them: a user who may edit a
// Service decides when they are listed, on every node, and a list is a large answer. Each time they are needed again
// they are followed twice as long after that, up to nodeLingerMax: whatever users write, a proxy lists them at most twelve
// times on its first day, and twice a day after that. Another key costs no list, for all labels of a node are kept.
const (
	nodePatience  = 10 * time.Second
	nodeLinger    = 30 * time.Second
	nodeLingerMax = 12 * time.Hour
)

// watchNodes follows the other nodes while a Service needs them, until the context ends.
func (w *Watcher) watchNodes(ctx context.Context) {
	linger := nodeLinger
	for ctx.Err() == nil {
		if w.needsOthers() {
			w.followNodes(ctx, linger)
			linger = min(2*linger, nodeLingerMax)
			continue
		}
		select {
		case <-ctx.Done():
		case <-w.need:
		}
	}
}

// followNodes lists and watches the other nodes until no Service has needed them for as long as they linger.
func (w *Watcher) followNodes(ctx context.Context, lingers time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	others := w.newStream(convert.OtherNodes, otherNodes, w.listWatches.others)
	others.follow(ctx)
	patience, linger := time.NewTimer(nodePatience), time.NewTimer(lingers)
	defer patience.Stop()
	defer linger.Stop()
	linger.Stop()
	for listed := others.listed; ; {
		select {
		case <-ctx.Done():
			return
		case <-listed:
			patience.Stop()
			listed = nil
		case <-patience.C:
			w.waitNoLonger()
		case <-w.need:
			if linger.Stop(); !w.needsOthers() {
				linger.Reset(lingers)
			}
		case <-linger.C:
			isDropped := false
			w.change(func(s *state) {
				if isDropped = s.dropOthers(); isDropped {
					cancel() // what the Reflector hands over from now on is not taken
				}
			})
			if isDropped {
				w.outages.forget(otherNodes)
				return
			}
		}
	}
}

// waitNoLonger serves the Services that wait for the other nodes, and says so.
func (w *Watcher) waitNoLonger() {
	var services int
	var keys []string
	isListed := false
	w.change(func(s *state) {
		if isListed = s.knowsOthers; isListed { // just now
			return
		}
		for _, key := range slices.Sorted(maps.Keys(s.uses)) {
			keys = append(keys, string(key))
		}
		services = s.waitNoLonger()
	})
	if isListed {
		return
	}
	w.options.Log.Warn("the other nodes could not be listed in time; to Services that wait for it, endpoints on unknown nodes match only `*`",
		"keys", keys, "services", services, "after", nodePatience)
}

func (w *Watcher) needsOthers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.needsOthers()
}
