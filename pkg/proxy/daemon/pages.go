package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/demandpage"
	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/authorization"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

// bindRetry is the pause before an address that another process has is tried again: kube-proxy's.
const bindRetry = 5 * time.Second

// listenAndServe answers at the address that a flag names, until ctx ends, over TLS if there are settings for it. If
// another process has the address it tries again, unless the configuration wants the proxy to end then: serving
// Services matters more than answering questions about them.
func (d *daemon) listenAndServe(ctx context.Context, flag, address string, secure *tls.Config, handler http.Handler) error {
	for logged := false; ; logged = true {
		listener, err := httpserve.Listen(ctx, flag, address)
		if err == nil {
			if secure != nil {
				listener = tls.NewListener(listener, secure)
			}
			return httpserve.Serve(ctx, listener, handler, d.log)
		}
		if d.options.Settings.BindAddressHardFail {
			return err
		}
		if !logged && ctx.Err() == nil {
			d.log.Error("could not serve on an address; trying again", "error", err, "retry-in", bindRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(bindRetry):
		}
	}
}

// demandAllowedFor is how long the API server's permission is cached for the page of demand. One reader asks every
// proxy twice a minute, for ever: at 5,000 nodes this makes eight requests a second to the API server instead of 42.
const demandAllowedFor = 10 * time.Minute

// serveMetricsSecurely serves the metrics and the page of demand over TLS to clients that the API server allows, if an
// address is set. Clients need not trust the certificate: it protects the client's token, and a scraper's token only
// permits reading metrics.
func (d *daemon) serveMetricsSecurely(ctx context.Context) error {
	if d.options.SecureMetricsAddress == "" {
		return nil
	}
	served := certificate{host: d.options.Node}
	if _, err := served.get(nil); err != nil {
		return fmt.Errorf("--secure-metrics-bind-address: %w", err)
	}
	pages := http.NewServeMux()
	pages.Handle("/metrics", authorization.New(d.ask, d.recorder.Handler(), d.log, time.Now))
	pages.Handle(demandpage.Path, authorization.New(d.ask, d.asked, d.log, time.Now).GoodFor(demandAllowedFor))
	secure := &tls.Config{GetCertificate: served.get, MinVersion: tls.VersionTLS12}
	return d.listenAndServe(ctx, "--secure-metrics-bind-address", d.options.SecureMetricsAddress, secure, pages)
}

// findingsPage is the page /findings. ?code=CODE selects findings of a code; ?inforce returns instead the objects that are
// refused, each with the version in force.
func (d *daemon) findingsPage(query url.Values) any {
	if query.Has("inforce") {
		return append([]convert.Refusal{}, d.objects.Refusals()...) // [] rather than null
	}
	return d.findings.standing(query["code"]...)
}

// pages are the pages at the address of metrics.
func (d *daemon) pages() http.Handler {
	return status.Pages{
		Metrics:  d.recorder.Handler(),
		Mode:     string(d.options.Configuration.Mode),
		Config:   func() map[string]any { return d.options.Configz },
		Flags:    d.options.Flags,
		Findings: d.findingsPage,
		Summary: func() status.Summary {
			summary := d.observer.syncs.Summary(d.options.Node, d.options.Build.Version, began, d.status.Verdict(time.Now()))
			summary.Manifests = d.options.absManifests()
			summary.Reachability = d.watch.summary()
			summary.XDS = d.mesh.summary()
			summary.KernelSettings = d.settings.summary()
			return summary
		},
		Build:     status.Build{Name: "vicinity-proxy", Version: d.options.Build.Version, GoVersion: d.options.Build.GoVersion},
		Began:     began,
		Now:       time.Now,
		Logged:    func(err error) { d.log.Error("could not serve a page", "error", err) },
		Profiling: d.options.Settings.Profiling,

		WithFlags:  d.options.Settings.Flagz,
		WithStatus: d.options.Settings.Statusz,
	}.Handler()
}
