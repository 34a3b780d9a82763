//go:build linux

package servicehealth

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// retryAfter is the pause before a health check that could not be served is tried again: the process that has its port
// may end.
const retryAfter = 5 * time.Second

// Reader makes Run serve the health checks of Services on the addresses of node ports. It is a reader of the proxy's
// decisions.
type Reader struct {
	// checks are those in force. The map is never changed, only replaced, once for each sync: others read it.
	checks  map[model.ObjectName]selection.HealthCheck
	changed map[model.ObjectName]selection.HealthCheck // since the last Synced; without a port: no check any more
	scope   *selection.Scope                           // that addresses are derived from; nil before the first Synced

	// wanted holds what should be served but is not served yet. Newer values replace older ones.
	wanted chan wanted
}

// wanted is what should be served.
type wanted struct {
	checks    map[model.ObjectName]selection.HealthCheck
	addresses map[model.Family]Addresses
}

// NewReader returns a reader without Services.
func NewReader() *Reader {
	return &Reader{
		checks:  map[model.ObjectName]selection.HealthCheck{},
		changed: map[model.ObjectName]selection.HealthCheck{},
		wanted:  make(chan wanted, 1),
	}
}

// Digest returns what is answered about a Service; nil if nothing is.
func (*Reader) Digest(decisions []selection.Decision) any {
	if check, isAsked := selection.HealthCheckOf(decisions); isAsked {
		return check
	}
	return nil
}

// Accept takes over what is answered about a Service.
func (r *Reader) Accept(service model.ObjectName, digest any) {
	now, _ := digest.(selection.HealthCheck)
	if delete(r.changed, service); now.Port != 0 || r.checks[service].Port != 0 {
		r.changed[service] = now
	}
}

// Synced makes Run serve checks that have changed, and all of them if the addresses have. Most syncs change neither.
func (r *Reader) Synced(sync selection.Sync) {
	isNew := r.acceptChecks()
	if r.scope == nil || !slices.Equal(r.scope.NodePorts, sync.Scope.NodePorts) || !slices.Equal(r.scope.OnAll, sync.Scope.OnAll) {
		r.scope, isNew = &sync.Scope, true
	}
	if !isNew {
		return
	}
	select {
	case <-r.wanted:
	default:
	}
	r.wanted <- wanted{r.checks, addressesOf(*r.scope)}
}

// acceptChecks takes over what has changed, and reports whether any check is a different one now.
func (r *Reader) acceptChecks() (isNew bool) {
	for service, check := range r.changed {
		if old := r.checks[service]; old.Port == check.Port && maps.Equal(old.Endpoints, check.Endpoints) {
			continue
		}
		if !isNew {
			r.checks, isNew = maps.Clone(r.checks), true
		}
		if r.checks[service] = check; check.Port == 0 {
			delete(r.checks, service)
		}
	}
	if len(r.changed) > 0 {
		r.changed = map[model.ObjectName]selection.HealthCheck{}
	}
	return isNew
}

// addressesOf returns where health checks are served, by family: where node ports are.
func addressesOf(scope selection.Scope) map[model.Family]Addresses {
	served := map[model.Family]Addresses{}
	for _, family := range model.Families {
		addresses := Addresses{All: slices.Contains(scope.OnAll, family)}
		addresses.Addrs = slices.DeleteFunc(slices.Clone(scope.NodePorts), func(addr netip.Addr) bool { return model.FamilyOf(addr) != family })
		served[family] = addresses
	}
	return served
}

// Run makes the servers serve until ctx ends, and then closes them. After each sync of the servers it reports what is
// not served; nil if everything is.
func (r *Reader) Run(ctx context.Context, servers *Servers, report func(error)) {
	defer servers.Close()
	var now wanted
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now = <-r.wanted:
		case <-again:
		}
		err := servers.Sync(ctx, now.checks, now.addresses)
		report(err)
		if again = nil; err != nil {
			again = time.After(retryAfter)
		}
	}
}
