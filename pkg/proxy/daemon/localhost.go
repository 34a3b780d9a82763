package daemon

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/localhost"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// loopbackOf returns the loopback addresses on which node ports are served, by family; none unless the settings ask for
// it.
func loopbackOf(config ruleset.Config) map[model.Family]netip.Addr {
	addrs := map[model.Family]netip.Addr{}
	for _, family := range config.Families {
		if addr, served := config.NodePorts.Loopback(family); served {
			addrs[family] = addr
		}
	}
	return addrs
}

// newLocalhost returns a server of node ports on loopback, and logs it if the limit of descriptors allows fewer
// connections than usual.
func newLocalhost(addrs map[model.Family]netip.Addr, observer localhost.Observer, log *slog.Logger) *localhost.Server {
	server := localhost.NewServer(addrs, observer)
	if most := server.Most(); most < localhost.MaxConnections {
		log.Warn("node ports on loopback serve fewer connections at once: the process may open few files",
			"connections", most, "elsewhere", localhost.MaxConnections, "do", "raise the hard limit of open files (ulimit -Hn) to 49152")
	}
	return server
}

// serveLocalhost serves node ports on loopback, if that is asked for.
func (d *daemon) serveLocalhost(ctx context.Context) error {
	if d.localhost == nil {
		return nil
	}
	return d.localhost.Run(ctx)
}

// countRejected makes each scrape ask the kernel how much it refused on loopback. Without kube-proxy's gate nothing is
// counted there, and there is no series.
func (d *daemon) countRejected(ctx context.Context) {
	d.recorder.AskFor(metrics.LocalhostRejected, func(add metrics.Adder) {
		for _, family := range d.config.Families {
			for _, protocol := range ruleset.RejectedOnLocalhost(family, d.config) {
				packets, isThere, err := d.conn.Packets(ctx, family, ruleset.RejectedCounter(protocol))
				if err != nil {
					d.log.Warn("a metric is left out", "error", err)
				}
				if isThere { // it comes with the first sync
					add(float64(packets), family.String(), protocol.String())
				}
			}
		}
	})
}

// localhostObserver passes on what the server of node ports on loopback does. Connections are not logged: a metric
// counts their outcomes.
type localhostObserver struct {
	recorder *metrics.Recorder
	findings *findings
}

// Listening is called whenever the server has updated what it listens on.
func (o localhostObserver) Listening(family model.Family, ports int) {
	o.recorder.Set(metrics.LocalhostListeners, ports, family.String())
}

// ListenFailed is called for each try that failed.
func (o localhostObserver) ListenFailed(family model.Family) {
	o.recorder.Add(metrics.LocalhostListenFailures, 1, family.String())
}

// Connection is called once for each connection.
func (o localhostObserver) Connection(family model.Family, outcome localhost.Outcome) {
	o.recorder.Add(metrics.LocalhostConnections, 1, family.String(), string(outcome))
}

// Found is called with all that is not listened on.
func (o localhostObserver) Found(findings []model.Finding) {
	o.findings.replaceAll(localhostListeners, findings)
}
