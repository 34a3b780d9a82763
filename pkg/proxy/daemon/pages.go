package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// listenAndServe serves HTTP at the address that a flag names, until ctx ends; over TLS if secure is not nil. If the
// address is in use it retries, because serving Services matters more than serving pages about them; with
// bindAddressHardFail it fails.
func (c *common) listenAndServe(ctx context.Context, flag, address string, tlsConfig *tls.Config, handler http.Handler) error {
	serve := func() error {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if tlsConfig != nil {
			listener = tls.NewListener(listener, tlsConfig)
		}
		return httpserve.Serve(ctx, listener, handler, c.log)
	}
	if c.options.Settings.BindAddressHardFail {
		return serve()
	}
	httpserve.Retry(ctx, c.log, "failed to serve on an address", serve)
	return nil
}

// newPages returns the component that serves the pages at the metrics address. One page has the summaries of all
// components.
func newPages(c *common, summarize func(*status.Summary), src objects, findings *findings) component {
	pages := status.Pages{
		Metrics: c.recorder.Handler(),
		Mode:    string(c.options.Configuration.Mode),
		Config:  func() map[string]any { return c.options.ConfigzData },
		Flags:   c.options.Flags,
		// ?code=CODE selects findings by code; ?last-known-good returns the rejected objects instead, each with its active
		// version.
		Findings: func(query url.Values) any {
			if query.Has("last-known-good") {
				return append([]convert.Rejection{}, src.Rejections()...) // [] rather than null
			}
			return findings.active(query["code"]...)
		},
		Summary: func() status.Summary {
			summary := c.status.Summary(c.options.Node, c.options.Build.Version, processStart, time.Now())
			summary.Manifests = c.options.absManifests()
			summarize(&summary)
			return summary
		},
		Build:     status.Build{Name: "vicinity-proxy", Version: c.options.Build.Version, GoVersion: c.options.Build.GoVersion},
		StartedAt: processStart,
		Now:       time.Now,
		OnError:   func(err error) { c.log.Error("failed to serve a page", "error", err) },
		Profiling: c.options.Settings.Profiling,

		WithFlags:  c.options.Settings.Flagz,
		WithStatus: c.options.Settings.Statusz,
	}
	return component{run: func(ctx context.Context) error {
		return c.listenAndServe(ctx, "--metrics-bind-address", c.options.Settings.MetricsBindAddress, nil, pages.Handler())
	}}
}
