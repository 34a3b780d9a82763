package daemon

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability/probe"
)

// partitionDelay is how long a node must have been unreachable before its state is checked. Without the delay a
// thousand proxies would write at the same time, at the worst moment. After a minute Kubernetes has detected a dead
// node. A node that is still Ready then is cut off by a network partition, which nothing else reports.
const (
	partitionDelay = time.Minute
	// partitionInterval is how often a proxy reads a Node from the API server, one at a time, however many are
	// unreachable.
	partitionInterval = 30 * time.Second
)

// partitionReporter reports nodes that are unreachable although they are Ready.
type partitionReporter struct {
	unreachable func() []probe.Ejected
	isReady     func(ctx context.Context, node string) (bool, error)
	report      func(node string)
	log         *slog.Logger

	checked map[string]time.Time // for each node that was read: since when it had been unreachable
}

// newPartitionReporter returns the component that reports such nodes, if nodes are probed and Events are sent.
func newPartitionReporter(c *common, reporter eventReporter, monitor *reachabilityMonitor) component {
	if monitor == nil || reporter.recorder == nil {
		return component{}
	}
	p := &partitionReporter{
		unreachable: func() []probe.Ejected { return monitor.prober.Status().Ejected },
		isReady:     reporter.cluster.IsReady,
		report:      func(node string) { reporter.report(events.Partitioned(node)) },
		log:         c.log,
	}
	return component{run: unfailing(p.run)}
}

// run checks nodes until ctx ends. Proxies start at different times, so together they check all nodes.
func (p *partitionReporter) run(ctx context.Context) {
	next := time.NewTimer(rand.N(partitionInterval))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			p.checkNext(ctx, time.Now())
			next.Reset(partitionInterval)
		}
	}
}

// checkNext checks a random one of the nodes that have been unreachable for partitionDelay. It checks
// a node once each time that the node becomes unreachable.
func (p *partitionReporter) checkNext(ctx context.Context, now time.Time) {
	var due []probe.Ejected
	stillChecked := map[string]time.Time{}
	for _, node := range p.unreachable() {
		if since, wasChecked := p.checked[node.Node]; wasChecked && since.Equal(node.Since) {
			stillChecked[node.Node] = since
		} else if now.Sub(node.Since) >= partitionDelay {
			due = append(due, node)
		}
	}
	p.checked = stillChecked
	if len(due) == 0 {
		return
	}
	chosen := due[rand.N(len(due))]
	isReady, err := p.isReady(ctx, chosen.Node)
	if err != nil {
		p.log.Debug("failed to check whether an unreachable node is Ready; retrying", "unreachableNode", chosen.Node, "error", err)
		return
	}
	p.checked[chosen.Node] = chosen.Since
	if isReady {
		p.report(chosen.Node)
	}
}
