package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/demandpage"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/asked"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/authorization"
)

// demandAllowedFor is how long the API server's permission is cached for the page of demand. One reader asks every
// proxy twice a minute, for ever: at 5,000 nodes this makes eight requests a second to the API server instead of 42.
const demandAllowedFor = 10 * time.Minute

// newSecureMetrics serves the metrics and the page of demand over TLS to clients that the API server allows, if an
// address is set. Clients need not trust the certificate: it protects the client's token, and a scraper's token only
// permits reading metrics. The page counts connections to Services whose load is bounded, while somebody reads it.
func newSecureMetrics(c *common, ask authorization.Ask) part {
	if c.options.SecureMetricsAddress == "" {
		return part{}
	}
	reader := asked.NewReader()
	counter := asked.NewCounter(reader, c.conn, c.config.Families, c.log, time.Now)
	serve := func(ctx context.Context) error {
		served := certificate{host: c.options.Node}
		if _, err := served.get(nil); err != nil {
			return fmt.Errorf("--secure-metrics-bind-address: %w", err)
		}
		pages := http.NewServeMux()
		pages.Handle("/metrics", authorization.New(ask, c.recorder.Handler(), c.log, time.Now))
		pages.Handle(demandpage.Path, authorization.New(ask, counter, c.log, time.Now).GoodFor(demandAllowedFor))
		secure := &tls.Config{GetCertificate: served.get, MinVersion: tls.VersionTLS12}
		return c.listenAndServe(ctx, "--secure-metrics-bind-address", c.options.SecureMetricsAddress, secure, pages)
	}
	return part{reader: reader, run: func(ctx context.Context) error { return cli.Together(ctx, serve, counter.Run) }}
}
