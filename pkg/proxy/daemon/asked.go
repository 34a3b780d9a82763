package daemon

import (
	"context"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/asked"
)

// newAsked makes the counter of connections to Services whose load is bounded, if its page is served.
func (d *daemon) newAsked() {
	if d.options.SecureMetricsAddress == "" {
		return
	}
	reader := asked.NewReader()
	d.readers = append(d.readers, reader)
	d.asked = asked.NewCounter(reader, d.conn, d.config.Families, d.log, time.Now)
}

// countAsked deletes the counting table when nobody reads the page any more, or ctx ends.
func (d *daemon) countAsked(ctx context.Context) error {
	if d.asked == nil {
		return nil
	}
	return d.asked.Run(ctx)
}
