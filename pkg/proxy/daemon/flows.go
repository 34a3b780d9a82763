package daemon

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/flows"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// newFlows returns the reader that knows which Service a connection belongs to, and the part that looks at connections
// after something changes.
func newFlows(c *common, looks *conntrack.Looks, isLocal selection.IsLocal) (*owners.Reader, part) {
	reader := owners.NewReader(flows.LookFor)
	reconciler := flows.NewReconciler(looks, reader, isLocal)
	return reader, part{
		reader: reader,
		run:    unfailing(func(ctx context.Context) { reconciler.Run(ctx, c.lookedAtFlows) }),
	}
}

// looked is called after each look at conntrack.
func (c *common) looked(look conntrack.Look) {
	result := metrics.LookComplete
	if look.CutOff > 0 {
		result = metrics.LookCutOff
	}
	c.recorder.Observe(metrics.ConntrackLooks, look.Took, result)
}

// lookedAtFlows is called after connections were looked at, with why some may be left.
func (c *common) lookedAtFlows(done flows.Done, err error) {
	for family, pass := range done.Flows {
		c.recorder.Add(metrics.FlowsEnded, pass.Ended, family.String())
		if pass.Took > 0 { // the look succeeded
			c.recorder.Observe(metrics.FlowsDuration, pass.Took, family.String())
		}
	}
	for protocol, n := range done.Anew {
		c.recorder.Add(metrics.FlowsForgotten, n, protocol.String(), metrics.FlowUnanswered)
	}
	for protocol, n := range done.Closed {
		c.recorder.Add(metrics.FlowsForgotten, n, protocol.String(), metrics.FlowClosed)
	}
	if len(done.Anew) > 0 {
		c.log.Info("unanswered dials go to other endpoints now, because theirs left",
			"tcp", done.Anew[model.TCP], "sctp", done.Anew[model.SCTP])
	}
	if len(done.Closed) > 0 {
		c.log.Debug("closed connections to endpoints that left were forgotten", "tcp", done.Closed[model.TCP], "sctp", done.Closed[model.SCTP])
	}
	if err != nil {
		c.log.Warn("some UDP flows or dials may go on to endpoints that are gone; trying again", "error", err)
	}
}
