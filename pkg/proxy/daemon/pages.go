package daemon

import (
	"context"
	"net/http"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

// bindRetry is the pause before an address that another process has is tried again: kube-proxy's.
const bindRetry = 5 * time.Second

// listenAndServe answers at the address that a flag names, until ctx ends. If another process has the address it tries
// again, unless that is to end the proxy: Services are worth more than questions about them.
func (d *daemon) listenAndServe(ctx context.Context, flag, address string, handler http.Handler) error {
	for logged := false; ; logged = true {
		listener, err := httpserve.Listen(ctx, flag, address)
		if err == nil {
			return httpserve.Serve(ctx, listener, handler, d.log)
		}
		if d.options.Settings.BindAddressHardFail {
			return err
		}
		if !logged && ctx.Err() == nil {
			d.log.Error("an address is not served; trying again", "error", err, "retry-in", bindRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(bindRetry):
		}
	}
}

// pages are what the address of metrics serves.
func (d *daemon) pages() http.Handler {
	return status.Pages{
		Metrics:   d.recorder.Handler(),
		Mode:      string(d.options.Configuration.Mode),
		Config:    func() map[string]any { return config.Configz(d.options.Configuration) },
		Flags:     d.options.Flags,
		Refused:   func() any { return d.observer.refused.list(d.options.Node) },
		Problems:  func() any { return d.feed.problems.list() },
		Build:     status.Build{Name: "vicinity-proxy", Version: d.options.Build.Version, GoVersion: d.options.Build.GoVersion},
		Began:     began,
		Now:       time.Now,
		Logged:    func(err error) { d.log.Error("a page could not be shown", "error", err) },
		Profiling: d.options.Settings.Profiling,
	}.Handler()
}
