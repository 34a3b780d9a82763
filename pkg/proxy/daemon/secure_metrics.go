package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/authorization"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/demandcounter"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

// How long an authorization by the API server is cached; kubelets cache theirs as long, or longer. One client requests
// the demand page of every proxy twice a minute. At 5,000 nodes this causes eight requests a second to the API server
// instead of 42.
const (
	metricsAuthTTL = 2 * time.Minute
	demandAuthTTL  = 10 * time.Minute
)

// newSecureMetrics returns the component that serves the metrics and the demand page over TLS to clients that the API
// server authorizes; it is empty if no address is set. Clients need not trust the certificate: it protects the client's
// token, and a scraper's token only permits reading metrics. While the demand page is being read, connections to
// Services with a load bound are counted for it. The handler of the index must precede this one.
func newSecureMetrics(c *common, reviewer authorization.Reviewer, dumps *conntrack.DumpScheduler, index *serviceindex.Index) component {
	if c.options.SecureMetricsAddress == "" {
		return component{}
	}
	frontends := demandcounter.NewFrontends()
	counter := demandcounter.NewCounter(frontends, c.conn, dumps, index, c.config.Families, c.log, time.Now)
	serve := func(ctx context.Context) error {
		certificate, err := selfSigned(c.options.Node)
		if err != nil {
			return fmt.Errorf("--secure-metrics-bind-address: %w", err)
		}
		pages := http.NewServeMux()
		pages.Handle("/metrics", authorization.New(reviewer, c.recorder.Handler(), c.log, time.Now, metricsAuthTTL))
		pages.Handle(demandapi.Path, authorization.New(reviewer, counter, c.log, time.Now, demandAuthTTL))
		tlsConfig := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		return c.listenAndServe(ctx, "--secure-metrics-bind-address", c.options.SecureMetricsAddress, tlsConfig, pages)
	}
	return component{handler: frontends, run: func(ctx context.Context) error { return cli.RunAll(ctx, serve, counter.Run) }}
}
