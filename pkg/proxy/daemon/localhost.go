package daemon

import (
	"context"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/localhost"
)

// loopbackOf returns the loopback addresses on which node ports are served, by family. The map is empty if the settings
// do not enable that.
func loopbackOf(config ruleset.Config) map[model.Family]netip.Addr {
	addrs := map[model.Family]netip.Addr{}
	for _, family := range config.Families {
		if addr, served := config.NodePorts.Loopback(family); served {
			addrs[family] = addr
		}
	}
	return addrs
}

// newLocalhost returns the component that serves node ports on loopback, if that is enabled. It logs if the descriptor
// limit allows fewer connections than the default. The kernel may reject packets there in either case, so these are
// always counted.
func newLocalhost(ctx context.Context, c *common, findings *findings) component {
	c.countRejected(ctx)
	addrs := loopbackOf(c.config)
	if len(addrs) == 0 {
		return component{}
	}
	server := localhost.NewServer(addrs, localhostObserver{c.recorder, findings})
	if limit := server.MaxConnections(); limit < localhost.MaxConnections {
		c.log.Warn("the limit of open files reduces the number of connections to node ports on loopback",
			"maxConnections", limit, "default", localhost.MaxConnections, "fix", "raise the hard limit of open files (ulimit -Hn) to 49152")
	}
	return component{handler: server, run: server.Run}
}

// countRejected reads the kernel's counters of rejected packets on loopback at each scrape. Without kube-proxy's
// feature gate nothing is counted there, and there is no series.
func (c *common) countRejected(ctx context.Context) {
	c.recorder.CollectFrom(metrics.LocalhostRejected, func(add metrics.Add) {
		for _, family := range c.config.Families {
			for _, protocol := range ruleset.RejectedOnLocalhost(family, c.config) {
				packets, exists, err := c.conn.Packets(ctx, family, ruleset.RejectedCounter(protocol))
				if err != nil {
					c.log.Warn("failed to read a metric; omitting it", "error", err)
				}
				if exists { // it exists after the first sync
					add(float64(packets), family.String(), protocol.String())
				}
			}
		}
	})
}

// localhostObserver receives the events of the server of node ports on loopback. Connections are not logged: a metric
// counts their outcomes.
type localhostObserver struct {
	recorder *metrics.Recorder
	findings *findings
}

// Listening is called whenever the server has updated its listeners.
func (o localhostObserver) Listening(family model.Family, ports int) {
	o.recorder.Set(metrics.LocalhostListeners, ports, family.String())
}

// ListenFailed is called after each failed attempt.
func (o localhostObserver) ListenFailed(family model.Family) {
	o.recorder.Add(metrics.LocalhostListenFailures, 1, family.String())
}

// Connection is called once for each connection.
func (o localhostObserver) Connection(family model.Family, outcome localhost.Outcome) {
	o.recorder.Add(metrics.LocalhostConnections, 1, family.String(), string(outcome))
}

// Found is called with all findings about ports without a listener.
func (o localhostObserver) Found(findings []model.Finding) {
	o.findings.replaceAll(sourceLocalhost, findings)
}
