package cluster

import (
	"context"
	"maps"
	"slices"
	"time"
)

// evacuatedNodes is the resource of the nodes that are being evacuated, likewise.
const evacuatedNodes = "nodes/evacuated"

// nodePatience is how long Services wait at most for the labels of the other nodes, from when those are asked for.
// Usually it takes less than a second. If the list does not come at all, because the proxy lacks the permission to
// list nodes, waiting would keep every change of those Services from their clients, and at the start every Service. So
// after this time they are served with what is known: an endpoint on an unknown node matches only `*`.
const nodePatience = 10 * time.Second

// watchNodes follows the other nodes while a Service needs them, until the context ends.
func (w *Watcher) watchNodes(ctx context.Context) {
	(&onDemand{
		watcher: w, choose: w.chooseSource, need: w.need, begin: (*state).begin,
		isNeeded: (*state).needsOthers, drop: (*state).dropOthers, waitNoLonger: w.waitNoLonger,
		tell: w.options.TopologyFrom,
	}).watch(ctx)
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
	w.options.Log.Warn("timed out listing other nodes; until it succeeds, endpoints on unknown nodes match only `*`",
		"keys", keys, "services", services, "after", nodePatience)
}
