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

	mutex      sync.Mutex
	checks     map[model.ObjectName]selection.HealthCheck // the applied checks
	scope      *selection.Scope                           // has the addresses of node ports; nil before the first OnSynced
	hasChanged bool                                       // a check changed since the last OnSynced
}

// NewHandler returns a Handler without Services.
func NewHandler() *Handler {
	return &Handler{changed: notify.NewSignal(), checks: map[model.ObjectName]selection.HealthCheck{}}
}

// Derive returns the health check of a Service; nil if it has none.
func (*Handler) Derive(decisions []selection.Decision) any {
	if check, hasCheck := selection.HealthCheckOf(decisions); hasCheck {
		return check
	}
	return nil
}

// OnApplied replaces the health check of a Service.
func (h *Handler) OnApplied(service model.ObjectName, digest any) {
	check, _ := digest.(selection.HealthCheck)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if old := h.checks[service]; old.Port == check.Port && maps.Equal(old.Endpoints, check.Endpoints) {
		return
	}
	if h.checks[service] = check; check.Port == 0 {
		delete(h.checks, service)
	}
	h.hasChanged = true
}

// OnSynced makes Run update the servers if any check or the addresses changed. Most syncs change neither.
func (h *Handler) OnSynced(state selection.SyncState) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.scope == nil || !slices.Equal(h.scope.NodePorts, state.Scope.NodePorts) ||
		!slices.Equal(h.scope.AllAddrFamilies, state.Scope.AllAddrFamilies) {
		h.scope, h.hasChanged = &state.Scope, true
	}
	if h.hasChanged {
		h.hasChanged = false
		h.changed.Notify()
	}
}

// Run serves the checks until ctx ends, and then closes the servers. After each update it reports the checks that are
// not served.
func (h *Handler) Run(ctx context.Context, servers *Servers, report func([]model.Finding)) {
	defer servers.Close()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.changed:
		case <-retry:
		}
		h.mutex.Lock()
		checks, scope := maps.Clone(h.checks), h.scope
		h.mutex.Unlock()
		findings := servers.Sync(ctx, checks, scope)
		report(findings)
		if retry = nil; len(findings) > 0 {
			retry = time.After(retryAfter)
		}
	}
}
