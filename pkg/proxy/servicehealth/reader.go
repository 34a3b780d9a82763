//go:build linux

package servicehealth

import (
	"context"
	"maps"
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
	scope   *selection.Scope                           // whose node ports have the addresses; nil before the first Synced

	// wanted holds what should be served but is not served yet. Newer values replace older ones.
	wanted chan wanted
}

// wanted is what should be served.
type wanted struct {
	checks map[model.ObjectName]selection.HealthCheck
	scope  *selection.Scope
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
	r.wanted <- wanted{r.checks, r.scope}
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

// Run makes the servers serve until ctx ends, and then closes them. After each sync of the servers it reports what is
// not served.
func (r *Reader) Run(ctx context.Context, servers *Servers, report func([]model.Finding)) {
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
		failed := servers.Sync(ctx, now.checks, now.scope)
		report(failed)
		if again = nil; len(failed) > 0 {
			again = time.After(retryAfter)
		}
	}
}
