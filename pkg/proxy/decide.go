package proxy

import (
	"runtime"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// decided is what was decided about some Services.
type decided struct {
	owned []ruleset.Service // by name
	// digests are what the readers keep of the decided Services, by reader; nil if no reader keeps anything. Other
	// Services keep what is in force, except for frontends that they lose.
	digests map[model.ObjectName][]any
	lost    map[model.ObjectName][]model.Frontend
}

// decide decides about the named Services. Services that the kernel refuses keep what is in force, and are tried again
// one by one.
func (p *Proxy) decide(names []model.ObjectName) decided {
	all := newDecided(len(names))
	p.decideMore(&all, names)
	return all
}

// decideMore adds what decide returns for more names. They sort after the earlier ones.
func (p *Proxy) decideMore(all *decided, names []model.ObjectName) {
	fit := slices.DeleteFunc(slices.Clone(names), func(name model.ObjectName) bool {
		if p.backlog.refused(name) != nil && p.cluster.Service(name) == nil {
			p.backlog.setRefusal(name, nil) // there is nothing left to refuse
		}
		return p.backlog.refused(name) != nil
	})
	before := len(all.owned)
	p.decideAnew(all, fit)
	if len(fit) == len(names) {
		return
	}
	for _, name := range names {
		if refused := p.backlog.refused(name); refused != nil {
			p.hold(all, refused)
		}
	}
	slices.SortFunc(all.owned[before:], func(a, b ruleset.Service) int { return a.Name.Compare(b.Name) })
}

// manyServices is the number of Services from which all processors decide: fewer are decided before the others have
// begun.
const manyServices = 256

// decideAnew adds decisions about the named Services, whether the kernel refuses them or not.
func (p *Proxy) decideAnew(all *decided, names []model.ObjectName) {
	services, digests := make([]ruleset.Service, len(names)), make([][]any, len(names))
	workers := 1
	if len(names) >= manyServices {
		workers = runtime.GOMAXPROCS(0)
	}
	var deciding sync.WaitGroup
	for worker := range workers { // the cluster does not change meanwhile, and no decision depends on another
		deciding.Go(func() {
			for i := len(names) * worker / workers; i < len(names)*(worker+1)/workers; i++ {
				services[i], digests[i] = p.decideService(names[i])
			}
		})
	}
	deciding.Wait()
	all.owned = append(all.owned, services...)
	for i, name := range names {
		all.digests[name] = digests[i]
	}
}

// decideService returns what a Service should own, and what readers keep of it.
func (p *Proxy) decideService(name model.ObjectName) (ruleset.Service, []any) {
	decisions := p.planner.Decide(name, p.config.Families)
	owned := ruleset.Service{Name: name}
	for _, decision := range decisions {
		if !decision.Service.IsHeadless { // whose readers answer DNS: nothing of it is in the kernel
			owned.Ports = append(owned.Ports, ruleset.NewPort(decision))
		}
	}
	return owned, p.readers.digest(decisions)
}

// newDecided returns room for the decisions about a number of Services.
func newDecided(services int) decided {
	return decided{
		owned:   make([]ruleset.Service, 0, services),
		digests: make(map[model.ObjectName][]any, services),
		lost:    map[model.ObjectName][]model.Frontend{},
	}
}

// leave keeps what is in force of a Service, except for the frontends that it has in have but not in now.
func (d *decided) leave(have, now ruleset.Service) {
	delete(d.digests, now.Name)
	stays := map[model.Frontend]bool{}
	for frontend := range now.Frontends() {
		stays[frontend] = true
	}
	for frontend := range have.Frontends() {
		if !stays[frontend] {
			d.lost[now.Name] = append(d.lost[now.Name], frontend)
		}
	}
}

// resolve returns the configuration with what the node's own object says.
func (p *Proxy) resolve() ruleset.Config {
	config := p.config
	if config.LocalTraffic.PodCIDRs {
		config.LocalTraffic.Prefixes = p.cluster.Self().PodCIDRs
	}
	return config
}

func (p *Proxy) surroundings() ruleset.Surroundings {
	return ruleset.NewSurroundings(p.config, p.cluster.Self(), p.cluster.LocalAddrs(), p.cluster.ServiceCIDRs())
}
