//go:build linux

package healthcheck

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// retryAfter is the delay before a failed health check server is retried: the process that has its port may end.
const retryAfter = 5 * time.Second

// Handler collects the health checks of Services, and Run serves them on the addresses of node ports. It is a handler
// of the proxy's decisions.
type Handler struct {
	changed notify.Signal // signals that checks or addresses changed

	mutex  sync.Mutex
	checks map[model.ObjectName]selection.HealthCheck // the applied checks
	scope  *selection.Scope                           // has the addresses of node ports; nil before the first OnSynced
	isNew  bool                                       // a check changed since the last OnSynced
}

// NewHandler returns a Handler without Services.
func NewHandler() *Handler {
	return &Handler{changed: notify.NewSignal(), checks: map[model.ObjectName]selection.HealthCheck{}}
}

// Derive returns the health check of a Service; nil if it has none.
func (*Handler) Derive(decisions []selection.Decision) any {
	if check, isAsked := selection.HealthCheckOf(decisions); isAsked {
		return check
	}
	return nil
}

// OnApplied replaces the health check of a Service.
func (r *Handler) OnApplied(service model.ObjectName, digest any) {
	now, _ := digest.(selection.HealthCheck)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if old := r.checks[service]; old.Port == now.Port && maps.Equal(old.Endpoints, now.Endpoints) {
		return
	}
	if r.checks[service] = now; now.Port == 0 {
		delete(r.checks, service)
	}
	r.isNew = true
}

// OnSynced makes Run update the servers if any check or the addresses changed. Most syncs change neither.
func (r *Handler) OnSynced(sync selection.SyncState) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.scope == nil || !slices.Equal(r.scope.NodePorts, sync.Scope.NodePorts) || !slices.Equal(r.scope.OnAll, sync.Scope.OnAll) {
		r.scope, r.isNew = &sync.Scope, true
	}
	if r.isNew {
		r.isNew = false
		r.changed.Notify()
	}
}

// Run serves the checks until ctx ends, and then closes the servers. After each update it reports the checks that are
// not served.
func (r *Handler) Run(ctx context.Context, servers *Servers, report func([]model.Finding)) {
	defer servers.Close()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-again:
		}
		r.mutex.Lock()
		checks, scope := maps.Clone(r.checks), r.scope
		r.mutex.Unlock()
		failed := servers.Sync(ctx, checks, scope)
		report(failed)
		if again = nil; len(failed) > 0 {
			again = time.After(retryAfter)
		}
	}
}
