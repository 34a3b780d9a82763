package apiserver

import (
	"context"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

const (
	// proxyCheckInterval is the interval in which we check whether proxies run on nearly all nodes. That rarely changes.
	proxyCheckInterval = 10 * time.Minute
	// maxMissingDivisor limits the share of nodes without a proxy to one in this number, as many as a rollout of the
	// manifests replaces at once. The demand of those nodes is not counted.
	maxMissingDivisor = 10
	// labelIdleTimeout is how long Nodes are watched after a Service needed labels that the proxies' slices do not have: a
	// user who changes a Service every second must not cause a list of all Nodes each time.
	labelIdleTimeout = 12 * time.Hour
)

// proxySlices is the source of other nodes' zones that consists of the EndpointSlices over the proxies' own pods.
type proxySlices struct {
	slices  *cache.ListWatch
	service model.ObjectName

	// labelsNeededAt is the last time at which a Service needed labels other than zones; zero if none has.
	labelsNeededAt time.Time
	// checkedAt is when coverNodes was determined, and nodes is the number of Nodes at that time; zero if it was not
	// determined yet.
	checkedAt  time.Time
	nodeCount  int
	coverNodes bool
}

// proxiesCoverNodes reports whether the proxies' slices have the labels that Services need of nearly all nodes.
func (w *Watcher) proxiesCoverNodes(ctx context.Context, isActive bool) bool {
	p, now := &w.proxies, time.Now()
	w.mu.Lock()
	needsLabels, known := w.state.nodes.NeedsLabels(), w.state.nodes.NodeCount()
	w.mu.Unlock()
	if needsLabels {
		p.labelsNeededAt = now
	}
	if p.service.Name == "" || !p.labelsNeededAt.IsZero() && now.Sub(p.labelsNeededAt) < labelIdleTimeout {
		return false
	}
	proxiesMissing := isActive && !isNearlyAll(known, p.nodeCount) // for example if the Service was deleted
	if !p.checkedAt.IsZero() && now.Sub(p.checkedAt) < proxyCheckInterval && !proxiesMissing {
		return p.coverNodes
	}
	nodes, err := w.countNodes(ctx)
	if err == nil && !isActive {
		known, err = p.count(ctx)
	}
	if err == nil {
		p.checkedAt, p.nodeCount, p.coverNodes = now, nodes, isNearlyAll(known, nodes)
	}
	return p.coverNodes
}

func isNearlyAll(known, nodes int) bool { return (nodes-known)*maxMissingDivisor <= nodes }

// count returns the number of nodes that have a proxy.
func (p *proxySlices) count(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	nodes := map[string]bool{}
	err := forEachPage(ctx, p.slices, func(sent runtime.Object) error {
		for node := range convert.ProxySlice(sent.(*discoveryv1.EndpointSlice)).Nodes {
			nodes[node] = true
		}
		return nil
	})
	return len(nodes), err
}
