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
func (r handlers) derive(decisions []selection.Decision) []any {
	if len(decisions) == 0 {
		return nil
	}
	var digests []any
	for i, reader := range r {
		if digest := reader.Derive(decisions); digest != nil {
			if digests == nil {
				digests = make([]any, len(r))
			}
			digests[i] = digest
		}
	}
	return digests
}

// onApplied passes the derived data of a Service to the handlers; nil means that nothing of it is applied, or that no
// handler derived anything.
func (r handlers) onApplied(name model.ObjectName, digests []any) {
	for i, reader := range r {
		var digest any
		if digests != nil {
			digest = digests[i]
		}
		reader.OnApplied(name, digest)
	}
}

// onMaybeApplied notifies the handlers of decisions that may or may not be applied.
func (r handlers) onMaybeApplied(decided decisions) {
	for i, reader := range r {
		doubter, ok := reader.(selection.MaybeAppliedHandler)
		if !ok {
			continue
		}
		for name, digests := range decided.derived {
			if digests != nil && digests[i] != nil {
				doubter.OnMaybeApplied(name, digests[i])
			}
		}
	}
}

// notifyHandlers passes what the kernel accepted to the handlers, sorted by Service. Services that lose frontends come
// first.
func (p *Proxy) notifyHandlers(decided decisions) {
	for _, name := range slices.SortedFunc(maps.Keys(decided.lostFrontends), model.ObjectName.Compare) {
		for _, reader := range p.handlers {
			if keeper, ok := reader.(selection.FrontendHandler); ok {
				keeper.OnFrontendsLost(name, decided.lostFrontends[name])
			}
		}
	}
	for _, service := range decided.owned {
		if digests, isDecided := decided.derived[service.Name]; isDecided {
			p.handlers.onApplied(service.Name, digests)
		}
		if rejected := p.backlog.rejectionOf(service.Name); rejected != nil {
			rejected.applied = service
		}
	}
}

// notifySynced notifies the handlers of the end of a sync.
func (p *Proxy) notifySynced(complete bool) {
	sync := selection.SyncState{
		Full:       complete,
		Scope:      selection.ScopeOf(p.cluster, p.config.Families, p.config.NodePorts, p.applied.LocalTraffic.Prefixes),
		LocalAddrs: p.cluster.LocalAddrs(),
	}
	for _, reader := range p.handlers {
		reader.OnSynced(sync)
	}
}
