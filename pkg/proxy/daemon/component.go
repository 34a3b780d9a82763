package daemon

import (
	"context"
	"log/slog"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// component is one task of a daemon. Any field may be nil; in a component that is not enabled, all are. A component's
// constructor registers its metrics.
type component struct {
	// handler receives the applied decisions.
	handler selection.Handler
	// run works until ctx ends. If it fails, all components end; if it returns nil before ctx ends, the others continue.
	run func(ctx context.Context) error
	// summary adds the state of the component to the page /summary.
	summary func(*status.Summary)
}

// components are the components of a daemon. Handlers are called in this order.
type components []component

func (c components) handlers() []selection.Handler {
	var all []selection.Handler
	for _, one := range c {
		if one.handler != nil {
			all = append(all, one.handler)
		}
	}
	return all
}

// run runs the components concurrently until ctx ends or one of them fails.
func (c components) run(ctx context.Context) error {
	var all []func(context.Context) error
	for _, one := range c {
		if one.run != nil {
			all = append(all, one.run)
		}
	}
	return cli.RunAll(ctx, all...)
}

func (c components) summarize(summary *status.Summary) {
	for _, one := range c {
		if one.summary != nil {
			one.summary(summary)
		}
	}
}

// unfailing returns the run function of a component that cannot fail.
func unfailing(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

// common is used by most components.
type common struct {
	options  *Options
	config   ruleset.Config // settings of the tables
	conn     *nft.Conn
	log      *slog.Logger
	status   *status.Status
	recorder *metrics.Recorder
}

func newCommon(options *Options, conn *nft.Conn, log *slog.Logger) *common {
	recorder := metrics.NewRecorder()
	recorder.Set(metrics.BuildInfo, 1, options.Build.Version, options.Build.GoVersion)
	return &common{
		options: options, config: options.Settings.Tables(conn.Families()), conn: conn, log: log, recorder: recorder,
		status: &status.Status{PendingTimeout: 2 * options.Settings.SyncPeriod, OnResponse: recorder.HealthServed},
	}
}
