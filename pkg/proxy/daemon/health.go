package daemon

import (
	"context"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/healthcheck"
)

// newHealth returns the component that serves the proxy's own health.
func newHealth(c *common) component {
	return component{run: func(ctx context.Context) error {
		return c.listenAndServe(ctx, "--healthz-bind-address", c.options.Settings.HealthzBindAddress, nil, c.status.Handler(time.Now))
	}}
}

// newHealthChecks returns the component that serves the health check node ports of Services. It never delays a sync.
func newHealthChecks(c *common, findings *findings) component {
	checks := healthcheck.NewHandler()
	isHealthy := func() bool { return c.status.Health(time.Now()).Healthy }
	reportFailed := func(failed []model.Finding) { findings.replaceAll(sourceHealthChecks, failed) }
	return component{
		handler: checks,
		run:     unfailing(func(ctx context.Context) { checks.Run(ctx, healthcheck.New(c.log, isHealthy), reportFailed) }),
	}
}
