package proxy

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// readers keep what they make of the decisions in force.
type readers []selection.Reader

// digest returns what the readers keep of decisions; nil if none keeps anything.
func (r readers) digest(decisions []selection.Decision) []any {
	if len(decisions) == 0 {
		return nil
	}
	var digests []any
	for i, reader := range r {
		if digest := reader.Digest(decisions); digest != nil {
			if digests == nil {
				digests = make([]any, len(r))
			}
			digests[i] = digest
		}
	}
	return digests
}

// accept has the readers take over the digests of a Service; nil: nothing of it is in force, or no reader keeps
// anything of it.
func (r readers) accept(name model.ObjectName, digests []any) {
	for i, reader := range r {
		var digest any
		if digests != nil {
			digest = digests[i]
		}
		reader.Accept(name, digest)
	}
}

// doubt tells the readers what may or may not be in force.
func (r readers) doubt(decided decided) {
	for i, reader := range r {
		doubter, ok := reader.(selection.Doubter)
		if !ok {
			continue
		}
		for name, digests := range decided.digests {
			if digests != nil && digests[i] != nil {
				doubter.MayBeInForce(name, digests[i])
			}
		}
	}
}

// handOver passes to the readers what the kernel has taken, by the names of the Services. Services that lose frontends
// come first.
func (p *Proxy) handOver(decided decided) {
	for _, name := range slices.SortedFunc(maps.Keys(decided.lost), model.ObjectName.Compare) {
		for _, reader := range p.readers {
			if keeper, ok := reader.(selection.FrontendReader); ok {
				keeper.Lose(name, decided.lost[name])
			}
		}
	}
	for _, service := range decided.owned {
		if digests, isDecided := decided.digests[service.Name]; isDecided {
			p.readers.accept(service.Name, digests)
		}
		if refused := p.backlog.refused(service.Name); refused != nil {
			refused.held = service
		}
	}
}

// tellSynced tells the readers that a sync is over.
func (p *Proxy) tellSynced(complete bool) {
	sync := selection.Sync{
		Complete:   complete,
		Scope:      selection.ScopeOf(p.cluster, p.config.Families, p.config.NodePorts, p.inForce.LocalTraffic.Prefixes),
		LocalAddrs: p.cluster.LocalAddrs(),
	}
	for _, reader := range p.readers {
		reader.Synced(sync)
	}
}
