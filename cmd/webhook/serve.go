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
	flags       *runFlags
	log         *slog.Logger
	recorder    *metrics.Recorder
	settings    *settings
	certificate certs.Source
	cluster     *cache.Cache
	manager     manager.Manager
	https       *server.Server
	unready     atomic.Pointer[string] // why it was not ready at the last request for /readyz; empty if it was ready
}

// serve serves admission reviews until stop ends, and then drains.
func serve(stop context.Context, stderr io.Writer, flags *runFlags) error {
	log := cli.NewLogger(stderr, flags.logFormat, flags.level)
	saveTime()
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	kube.LogTo(log)
	log.Info("starting", "version", thisBuild().Version, "certificate", flags.certSource)
	s, err := newWebhook(stop, flags, log)
	if err != nil {
		return err
	}
	// The manager and all other parts end only after the last request was served.
	err = cli.RunAll(s.https.Drain(stop), s.settings.follow, s.certificate.Run, s.followVersion, s.followDemand,
		s.publishTopology, s.measureDemand, s.runManager, s.https.Start)
	log.Info("ended")
	return err
}

// gcPercent is how much the heap may grow before a collection, in percent of the live heap, which is some 4 MB. With
// Go's default of 100 a review takes 10 to 40 % more CPU time (e2e/bench/webhook), and the process 12 MiB less memory.
// GOMEMLIMIT still applies.
const gcPercent = 400

// saveTime trades a little memory for CPU time, unless the user has set GOGC.
func saveTime() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// newWebhook creates the parts in the order of their dependencies.
func newWebhook(ctx context.Context, flags *runFlags, log *slog.Logger) (s *webhook, err error) {
	s = &webhook{flags: flags, log: log}
	if s.recorder, err = metrics.New(ctrlmetrics.Registry); err != nil {
		return nil, err
	}
	if s.settings, err = readSettings(flags, s.recorder, log); err != nil {
		return nil, err
	}
	connection := kube.Connection{Kubeconfig: flags.kubeconfig}
	if s.certificate, err = newCertificate(ctx, connection, flags, s.recorder, log); err != nil {
		return nil, err
	}
	listener, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	if s.manager, err = s.newManager(connection); err != nil {
		return nil, err
	}
	if s.cluster, err = cache.NewCache(ctx, s.manager.GetCache()); err != nil {
		return nil, err
	}
	s.https = s.newServer(listener)
	return s, s.addProbes()
}

// newManager returns the controller-runtime manager that runs the cache, the probes and the metrics.
func (s *webhook) newManager(connection kube.Connection) (manager.Manager, error) {
	config, err := connection.Config()
	if err != nil {
		return nil, err
	}
	made, err := ctrl.NewManager(config, manager.Options{
		Cache:                  ctrlcache.Options{ByObject: cache.ByObject()},
		Metrics:                metricsserver.Options{BindAddress: s.flags.metricAddress},
		HealthProbeBindAddress: s.flags.healthAddress,
		MapperProvider:         cache.Mapper,
	})
	if err != nil {
		return nil, fmt.Errorf("create the manager: %w", err)
	}
	return made, nil
}

// followVersion tracks the version of the API server until ctx ends.
func (s *webhook) followVersion(ctx context.Context) error {
	return s.cluster.FollowVersion(ctx, s.manager.GetConfig(), s.log)
}

// followDemand tracks whether measured demand is published until ctx ends.
func (s *webhook) followDemand(ctx context.Context) error {
	return s.cluster.FollowDemand(ctx, s.manager.GetConfig(), s.flags.namespace, s.log)
}

// runManager runs the manager until ctx ends. The manager does not notice the end while its cache waits for an API
// server that does not reply (its Start gives the cache another context). runManager then returns without it: a process
// that was never ready has received no review.
func (s *webhook) runManager(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if !s.cluster.HasSynced() {
		return nil
	}
	return <-ended
}

// listen binds the address early, so that an address in use is reported before anything else starts.
func (s *webhook) listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.flags.webhookAddress)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address %s: %w", s.flags.webhookAddress, err)
	}
	return listener, nil
}

func (s *webhook) newServer(listener net.Listener) *server.Server {
	knowledge := server.Dependencies{
		Settings: s.settings.current,
		Facts: func() rules.Facts {
			return rules.Facts{Nodes: s.cluster.Nodes(), Kubernetes: s.cluster.Version(), NoDemand: s.cluster.HasNoDemandPublisher()}
		},
		Namespace: s.cluster.Namespace,
	}
	return server.New(server.Options{
		Listener:      listener,
		Handlers:      server.Handlers(knowledge, s.flags.limits, s.recorder, s.log),
		Certificate:   s.certificate.GetCertificate,
		MinTLSVersion: s.flags.tlsVersion,
		Synced:        s.synced,
		ShutdownDelay: s.flags.shutdownDelay,
		Log:           s.log,
	})
}

func (s *webhook) addProbes() error {
	return errors.Join(
		s.manager.AddHealthzCheck("alive", healthz.Ping),
		s.manager.AddReadyzCheck("ready", func(*http.Request) error { return s.ready() }),
	)
}

// synced returns an error that names the kinds that are not cached yet.
func (s *webhook) synced() error {
	if !s.cluster.HasSynced() {
		return errors.New("the Namespaces and Nodes of the cluster are not cached yet")
	}
	return nil
}

// ready returns why no reviews should be sent here. controller-runtime omits the reason from its response to /readyz,
// so it is logged whenever it changes.
func (s *webhook) ready() error {
	err := s.https.Ready()
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	switch before := s.unready.Swap(&reason); {
	case before != nil && *before == reason:
	case err != nil:
		s.log.Info("not ready", "reason", reason)
	default:
		s.log.Info("ready")
	}
	return err
}
