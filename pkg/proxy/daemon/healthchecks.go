package daemon

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/servicehealth"
)

// serveHealthChecks serves the healthCheckNodePorts of Services beside the proxy's own work, which it never holds up.
func (d *daemon) serveHealthChecks(ctx context.Context) error {
	d.checks.Run(ctx, servicehealth.New(d.log, d.isHealthy), d.healthChecksServed)
	return nil
}

// healthChecksServed takes in which health checks cannot be served; nil if all are.
func (d *daemon) healthChecksServed(err error) {
	d.findings.replaceAll(healthCheckServers, servicehealth.FindingsOf(err))
}
