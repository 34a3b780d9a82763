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

// retryAfter is the pause before a health check that could not be served is tried again: the process that has its port
// may end.
const retryAfter = 5 * time.Second

// Handler makes Run serve the health checks of Services on the addresses of node ports. It is a reader of the proxy's
// decisions.
type Handler struct {
	changed notify.Signal // holds a signal while something is wanted that is not served yet

	mutex  sync.Mutex
	checks map[model.ObjectName]selection.HealthCheck // those in force
	scope  *selection.Scope                           // whose node ports have the addresses; nil before the first Synced
	isNew  bool                                       // a check is another one than at the last Synced
}

// NewHandler returns a reader without Services.
func NewHandler() *Handler {
	return &Handler{changed: notify.NewSignal(), checks: map[model.ObjectName]selection.HealthCheck{}}
}

// Derive returns what is answered about a Service; nil if nothing is.
func (*Handler) Derive(decisions []selection.Decision) any {
	if check, isAsked := selection.HealthCheckOf(decisions); isAsked {
		return check
	}
	return nil
}

// OnApplied takes over what is answered about a Service.
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

// OnSynced makes Run serve checks that have changed, and all of them if the addresses have. Most syncs change neither.
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

// Run makes the servers serve until ctx ends, and then closes them. After each sync of the servers it reports what is
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
