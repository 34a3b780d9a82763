package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/cache"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/server"
)

// webhook holds the parts of a running webhook.
type webhook struct {
	flags         *runFlags
	log           *slog.Logger
	recorder      *metrics.Recorder
	settings      *settings
	certificate   certs.Source
	cluster       *cache.Cache
	manager       manager.Manager
	https         *server.Server
	unreadyReason atomic.Pointer[string] // why it was not ready at the last request for /readyz; empty if it was ready
}

// serve serves admission reviews until stop ends, and then drains.
func serve(stop context.Context, stderr io.Writer, flags *runFlags) error {
	log := cli.NewLogger(stderr, flags.logFormat, flags.level)
	setGCPercent()
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	kube.LogTo(log)
	log.Info("starting", "version", thisBuild().Version, "certificate", flags.certSource)
	w, err := newWebhook(stop, flags, log)
	if err != nil {
		return err
	}
	// The manager and all other parts end only after the last request was served.
	err = cli.RunAll(w.https.Drain(stop), w.settings.follow, w.certificate.Run, w.followVersion, w.followDemand,
		w.publishTopology, w.measureDemand, w.runManager, w.https.Start)
	log.Info("ended")
	return err
}

// gcPercent is how much the heap may grow before a collection, in percent of the live heap, which is some 4 MB. With
// Go's default of 100 a review takes 10 to 40 % more CPU time (e2e/bench/webhook), and the process 12 MiB less memory.
// GOMEMLIMIT still applies.
const gcPercent = 400

// setGCPercent trades a little memory for CPU time, unless the user has set GOGC.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// newWebhook creates the parts in the order of their dependencies.
func newWebhook(ctx context.Context, flags *runFlags, log *slog.Logger) (w *webhook, err error) {
	w = &webhook{flags: flags, log: log}
	if w.recorder, err = metrics.New(ctrlmetrics.Registry); err != nil {
		return nil, err
	}
	if w.settings, err = readSettings(flags, w.recorder, log); err != nil {
		return nil, err
	}
	connection := kube.Connection{Kubeconfig: flags.kubeconfig}
	if w.certificate, err = newCertificate(ctx, connection, flags, w.recorder, log); err != nil {
		return nil, err
	}
	listener, err := w.listen(ctx)
	if err != nil {
		return nil, err
	}
	if w.manager, err = w.newManager(connection); err != nil {
		return nil, err
	}
	if w.cluster, err = cache.NewCache(ctx, w.manager.GetCache()); err != nil {
		return nil, err
	}
	w.https = w.newServer(listener)
	return w, w.addProbes()
}

// newManager returns the controller-runtime manager that runs the cache, the probes and the metrics.
func (w *webhook) newManager(connection kube.Connection) (manager.Manager, error) {
	config, err := connection.Config()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Cache:                  ctrlcache.Options{ByObject: cache.ByObject()},
		Metrics:                metricsserver.Options{BindAddress: w.flags.metricAddress},
		HealthProbeBindAddress: w.flags.healthAddress,
		MapperProvider:         cache.Mapper,
	})
	if err != nil {
		return nil, fmt.Errorf("create the manager: %w", err)
	}
	return mgr, nil
}

// followVersion tracks the version of the API server until ctx ends.
func (w *webhook) followVersion(ctx context.Context) error {
	return w.cluster.FollowVersion(ctx, w.manager.GetConfig(), w.log)
}

// followDemand tracks whether measured demand is published until ctx ends.
func (w *webhook) followDemand(ctx context.Context) error {
	return w.cluster.FollowDemand(ctx, w.manager.GetConfig(), w.flags.namespace, w.log)
}

// runManager runs the manager until ctx ends. The manager does not notice the end while its cache waits for an API
// server that does not reply (its Start gives the cache another context). runManager then returns without it: a process
// that was never ready has received no review.
func (w *webhook) runManager(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- w.manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if !w.cluster.HasSynced() {
		return nil
	}
	return <-ended
}

// listen binds the address early, so that an address in use is reported before anything else starts.
func (w *webhook) listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", w.flags.webhookAddress)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address %s: %w", w.flags.webhookAddress, err)
	}
	return listener, nil
}

func (w *webhook) newServer(listener net.Listener) *server.Server {
	dependencies := server.Dependencies{
		Settings: w.settings.current,
		Facts: func() rules.Facts {
			return rules.Facts{Nodes: w.cluster.Nodes(), Kubernetes: w.cluster.Version(), NoDemand: w.cluster.HasNoDemandPublisher()}
		},
		Namespace: w.cluster.Namespace,
	}
	return server.New(server.Options{
		Listener:      listener,
		Handlers:      server.Handlers(dependencies, w.flags.limits, w.recorder, w.log),
		Certificate:   w.certificate.GetCertificate,
		MinTLSVersion: w.flags.tlsVersion,
		Synced:        w.checkSynced,
		ShutdownDelay: w.flags.shutdownDelay,
		Log:           w.log,
	})
}

func (w *webhook) addProbes() error {
	return errors.Join(
		w.manager.AddHealthzCheck("alive", healthz.Ping),
		w.manager.AddReadyzCheck("ready", func(*http.Request) error { return w.checkReady() }),
	)
}

// checkSynced returns an error that names the kinds that are not cached yet.
func (w *webhook) checkSynced() error {
	if !w.cluster.HasSynced() {
		return errors.New("the Namespaces and Nodes of the cluster are not cached yet")
	}
	return nil
}

// checkReady returns why no reviews should be sent here. controller-runtime omits the reason from its response to /readyz,
// so it is logged whenever it changes.
func (w *webhook) checkReady() error {
	err := w.https.Ready()
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	switch before := w.unreadyReason.Swap(&reason); {
	case before != nil && *before == reason:
	case err != nil:
		w.log.Info("not ready", "reason", reason)
	default:
		w.log.Info("ready")
	}
	return err
}
