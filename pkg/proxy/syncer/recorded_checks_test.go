package syncer_test

import (
	"maps"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// healthChecks is a handler that keeps the health check responses to load balancers.
type healthChecks struct {
	all map[model.ObjectName]selection.HealthCheck
	// changed is set if they changed since the last call of takeChanged.
	changed bool
}

func (*healthChecks) Derive(decisions []selection.Decision) any {
	if check, hasCheck := selection.HealthCheckOf(decisions); hasCheck {
		return check
	}
	return nil
}

func (h *healthChecks) OnApplied(service model.ObjectName, derived any) {
	current, hasCheck := derived.(selection.HealthCheck)
	before, existed := h.all[service]
	h.changed = h.changed || hasCheck != existed || before.Port != current.Port || !maps.Equal(before.Endpoints, current.Endpoints)
	if h.all == nil {
		h.all = map[model.ObjectName]selection.HealthCheck{}
	}
	if h.all[service] = current; !hasCheck {
		delete(h.all, service)
	}
}

func (*healthChecks) OnSynced(selection.SyncState) {}

// takeChanged reports whether anything changed since the last call.
func (h *healthChecks) takeChanged() bool {
	changed := h.changed
	h.changed = false
	return changed
}
