package daemon

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/servicehealth"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// healthCheckRetry is how long after a health check could not be served it is tried again: the process that has its
// port may end.
const healthCheckRetry = 5 * time.Second

// healthChecks serves the healthCheckNodePorts of Services beside the proxy's own work, which it never holds up.
type healthChecks struct {
	servers  *servicehealth.Servers
	recorder *metrics.Recorder
	findings *findings
	// config says where node ports are served: health checks are answered there too.
	config ruleset.Config

	// wanted holds what is to be served, when it is not served yet. Newer takes the place of older.
	wanted chan wantedChecks
	last   wantedChecks
	addrs  []netip.Addr // that last.addresses are made of
}

type wantedChecks struct {
	checks    map[model.ObjectName]selection.HealthCheck
	addresses map[model.Family]servicehealth.Addresses
}

// follow takes over what a sync reports. It is called by one goroutine and returns at once. Most syncs change nothing
// of it.
func (h *healthChecks) follow(report proxy.Report) {
	isNew := h.last.addresses == nil || !slices.Equal(h.addrs, report.Surroundings.NodePortAddrs)
	if isNew {
		h.addrs, h.last.addresses = report.Surroundings.NodePortAddrs, h.addressesAmong(report.Surroundings.NodePortAddrs)
	}
	if report.HealthChecks != nil {
		h.last.checks, isNew = report.HealthChecks, true
	}
	if !isNew {
		return
	}
	select {
	case <-h.wanted:
	default:
	}
	h.wanted <- h.last
}

// addressesAmong returns on which of the addresses of node ports health checks are served, by family.
func (h *healthChecks) addressesAmong(addrs []netip.Addr) map[model.Family]servicehealth.Addresses {
	served := map[model.Family]servicehealth.Addresses{}
	for _, family := range h.config.Families {
		addresses := servicehealth.Addresses{All: h.config.NodePorts.All(family)}
		for _, addr := range addrs {
			if model.FamilyOf(addr) == family {
				addresses.Addrs = append(addresses.Addrs, addr)
			}
		}
		served[family] = addresses
	}
	return served
}

// servesAll reports whether every local address serves node ports, in all families.
func (h *healthChecks) servesAll() bool {
	return !slices.ContainsFunc(h.config.Families, func(family model.Family) bool { return !h.config.NodePorts.All(family) })
}

// run serves until ctx ends.
func (h *healthChecks) run(ctx context.Context) error {
	defer h.servers.Close()
	var now wantedChecks
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case now = <-h.wanted:
		case <-again:
		}
		err := h.servers.Sync(ctx, now.checks, now.addresses)
		h.recorder.HealthChecksFailed(err != nil)
		h.findings.replaceAll(healthCheckServers, servicehealth.FindingsOf(err))
		if again = nil; err != nil {
			again = time.After(healthCheckRetry)
		}
	}
}
