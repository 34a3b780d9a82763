package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/health"
	"github.com/vicinity-proxy/vicinity/pkg/healthcheck"
	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
	"github.com/vicinity-proxy/vicinity/pkg/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/source"
)

// serve is the daemon: it works until ctx ends, and leaves the rules in the kernel.
//
// What the daemon cannot do without is tried before anything changes: the kernel and both addresses.
func serve(ctx context.Context, stdout, stderr io.Writer, flags *runFlags) (err error) {
	conn, err := nft.Dial(nft.Options{Owned: flags.ownTables == "auto"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	flows, err := conntrack.Dial()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flows.Close()) }()
	listeners, err := listen(ctx, flags)
	if err != nil {
		return err
	}
	log := newLogger(stderr, flags.logFormat, flags.level)
	log.Info("starting", "version", thisBuild().Version, "node", flags.node, "manifests", flags.manifests, "owned-tables", conn.Owned())
	err = newDaemon(flags, conn, flows, stdout, log).run(ctx, listeners)
	log.Info("ended; the rules stay in the kernel")
	return err
}

// listeners are the sockets of the two servers.
type listeners struct{ health, metrics net.Listener }

func listen(ctx context.Context, flags *runFlags) (listeners, error) {
	healthListener, err := httpserve.Listen(ctx, "--health-address", flags.healthAddress)
	if err != nil {
		return listeners{}, err
	}
	metricsListener, err := httpserve.Listen(ctx, "--metrics-address", flags.metricsAddress)
	if err != nil {
		return listeners{}, errors.Join(err, healthListener.Close())
	}
	return listeners{healthListener, metricsListener}, nil
}

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// daemon holds the parts of a running proxy.
type daemon struct {
	flags    *runFlags
	config   ruleset.Config
	conn     *nft.Conn
	flows    *conntrack.Reconciler
	log      *slog.Logger
	status   *health.Status
	recorder *metrics.Recorder
	observer *observer
	feed     *feed
	checks   *healthChecks

	changes chan model.Change
	// disturbed holds one disturbance: two that were not dealt with yet are repaired by the same sync. They reach the proxy as
	// repairs, at a measured pace.
	disturbed, repairs chan struct{}
}

func newDaemon(flags *runFlags, conn *nft.Conn, flows *conntrack.Conn, stdout io.Writer, log *slog.Logger) *daemon {
	config := flags.config(conn.Families())
	d := &daemon{
		config: config, flags: flags, conn: conn, flows: conntrack.NewReconciler(flows), log: log,
		status: &health.Status{}, recorder: metrics.NewRecorder(),
		changes: make(chan model.Change), disturbed: make(chan struct{}, 1), repairs: make(chan struct{}),
	}
	d.checks = &healthChecks{
		servers: healthcheck.New(log, d.isHealthy), log: log, recorder: d.recorder,
		config: config, wanted: make(chan wantedChecks, 1),
	}
	d.observer = &observer{node: flags.node, stdout: stdout, log: log, status: d.status, recorder: d.recorder, checks: d.checks}
	d.feed = newFeed(flags.node, config, d.changes, log, d.status, d.recorder)
	return d
}

func (d *daemon) isHealthy() bool { return d.status.Verdict(time.Now()).Healthy }

// run lets the parts work side by side until ctx ends or one of them fails.
func (d *daemon) run(ctx context.Context, listeners listeners) error {
	return together(ctx,
		func(ctx context.Context) error {
			return httpserve.Serve(ctx, listeners.health, d.status.Handler(time.Now), d.log)
		},
		func(ctx context.Context) error {
			return httpserve.Serve(ctx, listeners.metrics, d.recorder.Handler(), d.log)
		},
		func(ctx context.Context) error {
			manifests := source.NewManifests(d.flags.manifests, d.log)
			if err := manifests.Run(ctx, func(update source.Update) { d.feed.deliver(ctx, update) }); err != nil {
				return fmt.Errorf("load manifests: %w", err)
			}
			return nil
		},
		func(ctx context.Context) error {
			return interfaces.Watch(ctx, d.log, func(addrs []netip.Addr) { d.feed.deliverAddrs(ctx, addrs) })
		},
		d.checks.run,
		func(ctx context.Context) error {
			d.flows.Run(ctx, d.observer.FlowsLookedAt)
			return nil
		},
		func(ctx context.Context) error { return d.conn.Watch(ctx, d.repair) },
		func(ctx context.Context) error {
			pace(ctx, repairInterval, d.disturbed, d.repairs)
			return nil
		},
		func(ctx context.Context) error {
			proxy.New(d.flags.node, d.config, d.conn, d.flows).Run(ctx, d.changes, d.repairs, d.observer)
			return nil
		},
	)
}

// repair asks for a complete sync after somebody else changed our tables.
func (d *daemon) repair(change nft.ForeignChange) {
	if change.Lost {
		d.log.Warn("changes of nftables may have been missed; writing our tables anew")
	} else {
		d.log.Warn("another process changed our tables; repairing them",
			"process", change.Process, "pid", change.PID, "families", fmt.Sprint(change.Families))
		for _, family := range change.Families {
			d.recorder.ForeignChange(family.String())
		}
	}
	select {
	case d.disturbed <- struct{}{}:
	default:
	}
}

// together runs all parts, each in a goroutine, until all have ended. The first that fails ends the others, and its error is
// returned.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	var first error
	for range parts {
		if err := <-ended; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}
