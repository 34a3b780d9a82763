package syncer

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// handlers keep data derived from the applied decisions.
type handlers []selection.Handler

// derive returns what the handlers derive from decisions, by handler; nil means that none derives anything.
func (h handlers) derive(decisions []selection.Decision) []any {
	if len(decisions) == 0 {
		return nil
	}
	var derived []any
	for i, handler := range h {
		if value := handler.Derive(decisions); value != nil {
			if derived == nil {
				derived = make([]any, len(h))
			}
			derived[i] = value
		}
	}
	return derived
}

// onApplied passes the derived data of a Service to the handlers; nil means that nothing of it is applied, or that no
// handler derived anything.
func (h handlers) onApplied(name model.ObjectName, derived []any) {
	for i, handler := range h {
		var value any
		if derived != nil {
			value = derived[i]
		}
		handler.OnApplied(name, value)
	}
}

// onMaybeApplied notifies the handlers of decisions that may or may not be applied.
func (h handlers) onMaybeApplied(decided decisions) {
	for i, handler := range h {
		maybeHandler, ok := handler.(selection.MaybeAppliedHandler)
		if !ok {
			continue
		}
		for name, derived := range decided.derived {
			if derived != nil && derived[i] != nil {
				maybeHandler.OnMaybeApplied(name, derived[i])
			}
		}
	}
}

// notifyHandlers passes what the kernel accepted to the handlers, sorted by Service. Services that lose frontends come
// first.
func (p *Proxy) notifyHandlers(decided decisions) {
	for _, name := range slices.SortedFunc(maps.Keys(decided.lostFrontends), model.ObjectName.Compare) {
		for _, handler := range p.handlers {
			if frontendHandler, ok := handler.(selection.FrontendHandler); ok {
				frontendHandler.OnFrontendsLost(name, decided.lostFrontends[name])
			}
		}
	}
	for _, service := range decided.owned {
		if derived, isDecided := decided.derived[service.Name]; isDecided {
			p.handlers.onApplied(service.Name, derived)
		}
		if rejected := p.backlog.rejectionOf(service.Name); rejected != nil {
			rejected.applied = service
		}
	}
}

// notifySynced notifies the handlers of the end of a sync.
func (p *Proxy) notifySynced(full bool) {
	sync := selection.SyncState{
		Full:       full,
		Scope:      selection.ScopeOf(p.cluster, p.config.Families, p.config.NodePorts, p.applied.LocalTraffic.Prefixes),
		LocalAddrs: p.cluster.LocalAddrs(),
	}
	for _, handler := range p.handlers {
		handler.OnSynced(sync)
	}
}
