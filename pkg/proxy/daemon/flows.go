package daemon

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/flows"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// newOwners returns the reader that knows which Service a connection belongs to. After something changes, connections are
// looked at.
func (d *daemon) newOwners(looks *conntrack.Looks, isLocal selection.IsLocal) *owners.Reader {
	reader := owners.NewReader(flows.LookFor)
	reader.Unrecalled = func(err error) {
		d.log.Warn("UDP flows of Services that changed while no proxy ran may continue", "error", err)
	}
	d.flows = flows.NewReconciler(looks, reader, isLocal)
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

// lookedAtFlows is called after connections were looked at, with why some may be left.
func (d *daemon) lookedAtFlows(done flows.Done, err error) {
	for family, pass := range done.Flows {
		d.recorder.Add(metrics.FlowsEnded, pass.Ended, family.String())
		if pass.Took > 0 { // the look succeeded
			d.recorder.Observe(metrics.FlowsDuration, pass.Took, family.String())
		}
	}
	for protocol, n := range done.Anew {
		d.recorder.Add(metrics.FlowsForgotten, n, protocol.String(), metrics.FlowUnanswered)
	}
	for protocol, n := range done.Closed {
		d.recorder.Add(metrics.FlowsForgotten, n, protocol.String(), metrics.FlowClosed)
	}
	if len(done.Anew) > 0 {
		d.log.Info("unanswered dials go to other endpoints now, because theirs left",
			"tcp", done.Anew[model.TCP], "sctp", done.Anew[model.SCTP])
	}
	if len(done.Closed) > 0 {
		d.log.Debug("closed connections to endpoints that left were forgotten", "tcp", done.Closed[model.TCP], "sctp", done.Closed[model.SCTP])
	}
	if err != nil {
		d.log.Warn("some UDP flows or dials may go on to endpoints that are gone; trying again", "error", err)
	}
}
