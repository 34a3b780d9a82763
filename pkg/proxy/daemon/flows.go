package daemon

import "github.com/vicinity-proxy/vicinity/pkg/proxy/flows"

// newFlows returns the reader that has UDP flows looked at.
func (d *daemon) newFlows() *flows.Reader {
	reader := flows.NewReader(d.flows)
	reader.Unrecalled = func(err error) {
		d.log.Warn("UDP flows of Services that were deleted or changed while no proxy ran may go on", "error", err)
	}
	return reader
}
