package daemon

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability/probe"
)

// When users are told of a node that does not answer this one: not at once, because a thousand proxies would write
// together, at the worst moment. After a minute Kubernetes has noticed that a node is dead. A node that is still Ready
// then is cut off by a partitioned network, which nothing else reports.
const (
	partitionDelay = time.Minute
	// partitionInterval is how often a proxy asks the API server for a Node, one at a time, however many do not answer.
	partitionInterval = 30 * time.Second
)

// partitionReporter finds nodes that do not answer this one although they are Ready.
type partitionReporter struct {
	unreachable func() []probe.Ejected
	isReady     func(ctx context.Context, node string) (bool, error)
	report      func(node string)
	log         *slog.Logger

	checked map[string]time.Time // for nodes that were asked for: since when they had not answered
}

// newPartitionReporter reports them, if nodes are dialled and there are users to tell.
func newPartitionReporter(c *common, reporter eventReporter, monitor *reachabilityMonitor) part {
	if monitor == nil || reporter.recorder == nil {
		return part{}
	}
	p := &partitionReporter{
		unreachable: func() []probe.Ejected { return monitor.prober.Status().Ejected },
		isReady:     reporter.cluster.IsReady,
		report:      func(node string) { reporter.report(events.Partitioned(node)) },
		log:         c.log,
	}
	return part{run: unfailing(p.run)}
}

// run asks until ctx ends. Proxies begin at different times, so together they ask for all nodes.
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

// checkNext asks for one of the nodes that have not answered for a minute, whichever; once for each time that a node falls
// silent.
func (p *partitionReporter) checkNext(ctx context.Context, now time.Time) {
	var due []probe.Ejected
	asked := map[string]time.Time{}
	for _, node := range p.unreachable() {
		if since, isAsked := p.checked[node.Node]; isAsked && since.Equal(node.Since) {
			asked[node.Node] = since
		} else if now.Sub(node.Since) >= partitionDelay {
			due = append(due, node)
		}
	}
	p.checked = asked
	if len(due) == 0 {
		return
	}
	chosen := due[rand.N(len(due))]
	isReady, err := p.isReady(ctx, chosen.Node)
	if err != nil {
		p.log.Debug("could not ask whether a node that does not answer is Ready; trying again", "unreachableNode", chosen.Node, "error", err)
		return
	}
	p.checked[chosen.Node] = chosen.Since
	if isReady {
		p.report(chosen.Node)
	}
}
