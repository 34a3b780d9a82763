package syncer

import (
	"runtime"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// decisions are the decisions about some Services.
type decisions struct {
	owned []ruleset.Service // what each Service should own, sorted by name
	// derived holds what the handlers derived from the decisions about each Service, by handler; nil means that none
	// derived anything. Services without an entry keep what is applied, except for lostFrontends.
	derived       map[model.ObjectName][]any
	lostFrontends map[model.ObjectName][]model.Frontend
}

// decide decides about the named Services. Rejected Services keep their applied version, and are retried one by one.
func (p *Proxy) decide(names []model.ObjectName) decisions {
	all := newDecisions(len(names))
	p.decideMore(&all, names)
	return all
}

// decideMore adds to all the decisions about more names, which must sort after the earlier ones.
func (p *Proxy) decideMore(all *decisions, names []model.ObjectName) {
	accepted := slices.DeleteFunc(slices.Clone(names), func(name model.ObjectName) bool {
		if p.backlog.rejectionOf(name) != nil && p.cluster.Service(name) == nil {
			p.backlog.setRejection(name, nil) // a deleted Service is not rejected any more
		}
		return p.backlog.rejectionOf(name) != nil
	})
	start := len(all.owned)
	p.decideIncludingRejected(all, accepted)
	if len(accepted) == len(names) {
		return
	}
	for _, name := range names {
		if rejected := p.backlog.rejectionOf(name); rejected != nil {
			p.keepApplied(all, rejected)
		}
	}
	slices.SortFunc(all.owned[start:], func(a, b ruleset.Service) int { return a.Name.Compare(b.Name) })
}

// minParallelServices is the minimum number of Services that are decided in parallel: one goroutine decides fewer
// before others would have started.
const minParallelServices = 256

// decideIncludingRejected adds decisions about the named Services, whether they are rejected or not.
func (p *Proxy) decideIncludingRejected(all *decisions, names []model.ObjectName) {
	services, derived := make([]ruleset.Service, len(names)), make([][]any, len(names))
	workers := 1
	if len(names) >= minParallelServices {
		workers = runtime.GOMAXPROCS(0)
	}
	var deciding sync.WaitGroup
	for worker := range workers { // the cluster does not change during this, and no decision depends on another
		deciding.Go(func() {
			for i := len(names) * worker / workers; i < len(names)*(worker+1)/workers; i++ {
				services[i], derived[i] = p.decideService(names[i])
			}
		})
	}
	deciding.Wait()
	all.owned = append(all.owned, services...)
	for i, name := range names {
		all.derived[name] = derived[i]
	}
}

// decideService returns the elements that a Service should own, and what the handlers derived from its decisions.
func (p *Proxy) decideService(name model.ObjectName) (ruleset.Service, []any) {
	decisions := p.planner.Decide(name, p.config.Families)
	owned := ruleset.Service{Name: name}
	for _, decision := range decisions {
		if !decision.Service.IsHeadless { // only served by DNS: the kernel has no elements for it
			owned.Ports = append(owned.Ports, ruleset.NewPort(decision))
		}
	}
	return owned, p.handlers.derive(decisions)
}

// newDecisions returns empty decisions with capacity for a number of Services.
func newDecisions(services int) decisions {
	return decisions{
		owned:         make([]ruleset.Service, 0, services),
		derived:       make(map[model.ObjectName][]any, services),
		lostFrontends: map[model.ObjectName][]model.Frontend{},
	}
}

// keepApplied keeps what is applied of a Service, except for the frontends that are in have but not in kept.
func (d *decisions) keepApplied(have, kept ruleset.Service) {
	delete(d.derived, kept.Name)
	isKept := map[model.Frontend]bool{}
	for frontend := range kept.Frontends() {
		isKept[frontend] = true
	}
	for frontend := range have.Frontends() {
		if !isKept[frontend] {
			d.lostFrontends[kept.Name] = append(d.lostFrontends[kept.Name], frontend)
		}
	}
}

// resolveConfig returns the configuration, including the settings from the node's own object.
func (p *Proxy) resolveConfig() ruleset.Config {
	config := p.config
	if config.LocalTraffic.PodCIDRs {
		config.LocalTraffic.Prefixes = p.cluster.Self().PodCIDRs
	}
	return config
}

func (p *Proxy) nodeState() ruleset.NodeState {
	return ruleset.NewNodeState(p.config, p.cluster.Self(), p.cluster.LocalAddrs(), p.cluster.ServiceCIDRs())
}
