package daemon

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/flows"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// newFlows returns the reader that has UDP flows looked at.
func (d *daemon) newFlows(looks *conntrack.Looks, isLocal selection.IsLocal) *flows.Reader {
	d.flows = flows.NewReconciler(looks, isLocal)
	reader := flows.NewReader(d.flows)
	reader.Unrecalled = func(err error) {
		d.log.Warn("UDP flows of Services that changed while no proxy ran may continue", "error", err)
	}
	return reader
}

// newOwners returns the reader that knows which Service a connection belongs to. After endpoints leave, dials to them
// are looked at.
func (d *daemon) newOwners(looks *conntrack.Looks, isLocal selection.IsLocal) *owners.Reader {
	reader := owners.NewReader(owners.Options{Keep: flows.LookFor, Places: d.options.Account != nil || d.options.UnreachableNodes.dials()})
	d.dials = flows.NewDials(looks, reader, isLocal)
	return reader
}

// looked is called after each look at conntrack.
func (d *daemon) looked(look conntrack.Look) {
	result := metrics.LookComplete
	if look.CutOff > 0 {
		result = metrics.LookCutOff
	}
	d.recorder.Observe(metrics.ConntrackLooks, look.Took, result)
}

// drewAnew is called after dials were looked at.
func (d *daemon) drewAnew(drawn flows.Drawn, err error) {
	for protocol, n := range drawn.Anew {
		d.recorder.Add(metrics.FlowsForgotten, n, protocol.String(), metrics.FlowUnanswered)
	}
	for protocol, n := range drawn.Closed {
		d.recorder.Add(metrics.FlowsForgotten, n, protocol.String(), metrics.FlowClosed)
	}
	if len(drawn.Anew) > 0 {
		d.log.Info("unanswered dials go to other endpoints now, because theirs left",
			"tcp", drawn.Anew[model.TCP], "sctp", drawn.Anew[model.SCTP])
	}
	if len(drawn.Closed) > 0 {
		d.log.Debug("closed connections to endpoints that left were forgotten", "tcp", drawn.Closed[model.TCP], "sctp", drawn.Closed[model.SCTP])
	}
	if err != nil {
		d.log.Warn("some dials may go on to endpoints that are gone; trying again", "error", err)
	}
}
