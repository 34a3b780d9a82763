package proxy

import (
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Reader is handed the decisions about Services: the same that the tables are made from. The proxy's own readers make
// rules, UDP flows, health checks and reasons of them.
type Reader interface {
	// Read takes the decisions about a Service, one for each port and family, in place of those that it was handed
	// before; none if the Service is gone. It is called once the kernel has taken them, by the goroutine that syncs,
	// which waits for it. A complete sync hands over every Service anew. Of a Service that the kernel refuses nothing is
	// handed over until it takes it. The decisions are shared: a reader must not change them.
	Read(service model.ObjectName, decisions []selection.Decision)
}

// decided is what was decided about some Services.
type decided struct {
	// decisions are kept for other readers than those below; nil if there are none.
	decisions map[model.ObjectName][]selection.Decision
	owned     []ruleset.Service // by name
	// flows, checks and reasons have an entry for each of the Services, often an empty one.
	flows    map[model.ObjectName][]selection.Flows
	checks   map[model.ObjectName]selection.HealthCheck
	reasons  map[model.ObjectName][]PortReason
	plans    map[model.ObjectName]selection.Plans // of those that were decided
	findings map[model.ObjectName][]model.Finding // of those that were decided and have any, or had
}

// decide decides about the named Services. What is in force of those that the kernel refuses stays; they are tried
// again alone.
func (p *Proxy) decide(names []model.ObjectName) decided {
	all := p.newDecided(len(names))
	p.decideMore(&all, names)
	return all
}

// decideMore adds what decide does. The names come after those of before.
func (p *Proxy) decideMore(all *decided, names []model.ObjectName) {
	fit := slices.DeleteFunc(slices.Clone(names), func(name model.ObjectName) bool {
		if p.refused[name] != nil && p.cluster.Service(name) == nil {
			delete(p.refused, name) // there is nothing left to refuse
			p.unreported[name] = true
		}
		return p.refused[name] != nil
	})
	before := len(all.owned)
	p.decideAnew(all, fit)
	if len(fit) == len(names) {
		return
	}
	for _, name := range names {
		if refused := p.refused[name]; refused != nil {
			all.hold(p, refused)
		}
	}
	slices.SortFunc(all.owned[before:], func(a, b ruleset.Service) int { return a.Name.Compare(b.Name) })
}

// manyServices is from how many Services on all processors decide: fewer are decided before others have begun.
const manyServices = 256

// decideAnew adds decisions about the named Services, whatever the kernel thinks of them.
func (p *Proxy) decideAnew(all *decided, names []model.ObjectName) {
	services := make([]decidedService, len(names))
	workers := 1
	if len(names) >= manyServices {
		workers = runtime.GOMAXPROCS(0)
	}
	var deciding sync.WaitGroup
	for worker := range workers { // the cluster does not change meanwhile, and no decision depends on another
		deciding.Go(func() {
			for i := len(names) * worker / workers; i < len(names)*(worker+1)/workers; i++ {
				services[i] = p.decideService(names[i])
			}
		})
	}
	deciding.Wait()
	p.gather(all, services)
}

// decidedService is what was decided about one Service.
type decidedService struct {
	decisions []selection.Decision // nil if nobody else reads them
	owned     ruleset.Service
	flows     []selection.Flows
	check     selection.HealthCheck
	reasons   []PortReason
	plans     selection.Plans
	findings  []model.Finding
}

func (p *Proxy) decideService(name model.ObjectName) decidedService {
	decisions := p.nodes.Decide(name, p.config.Families)
	service := decidedService{owned: ruleset.Service{Name: name}}
	if len(p.Readers) > 0 {
		service.decisions = decisions
	}
	for _, decision := range decisions {
		service.find(decision)
		if decision.Service.IsHeadless {
			continue // its readers answer DNS: nothing of it is in the kernel
		}
		service.owned.Ports = append(service.owned.Ports, ruleset.NewPort(decision))
		service.reasons = append(service.reasons, reasonsOf(decision)...)
		if decision.Port.Protocol == model.UDP {
			service.flows = append(service.flows, decision.Flows()...)
		}
	}
	service.check, _ = selection.HealthCheckOf(p.cluster, name)
	service.plans = selection.PlansOf(decisions)
	return service
}

// newDecided returns room for what is decided about so many Services.
func (p *Proxy) newDecided(services int) decided {
	all := decided{
		owned:   make([]ruleset.Service, 0, services),
		flows:   make(map[model.ObjectName][]selection.Flows, services),
		checks:  make(map[model.ObjectName]selection.HealthCheck, services),
		reasons: make(map[model.ObjectName][]PortReason, services),
		plans:   map[model.ObjectName]selection.Plans{},

		findings: map[model.ObjectName][]model.Finding{},
	}
	if len(p.Readers) > 0 {
		all.decisions = make(map[model.ObjectName][]selection.Decision, services)
	}
	return all
}

// gather puts together what was decided about some Services.
func (p *Proxy) gather(all *decided, services []decidedService) {
	for i := range services {
		service := &services[i]
		name := service.owned.Name
		if all.decisions != nil {
			all.decisions[name] = service.decisions
		}
		if len(service.findings) > 0 || p.faulty[name] {
			all.findings[name] = service.findings
		}
		all.owned, all.checks[name] = append(all.owned, service.owned), service.check
		all.flows[name], all.reasons[name] = service.flows, service.reasons
		if service.plans != nil || p.nodes.Has(name) {
			all.plans[name] = service.plans
		}
	}
}

// handOver hands what the kernel has taken to the readers, by the names of the Services.
func (p *Proxy) handOver(decisions map[model.ObjectName][]selection.Decision) {
	for _, name := range slices.SortedFunc(maps.Keys(decisions), model.ObjectName.Compare) {
		for _, reader := range p.Readers {
			reader.Read(name, decisions[name])
		}
	}
}

// acceptChecks takes over the health checks of some Services and reports whether any is another one now.
func (p *Proxy) acceptChecks(now map[model.ObjectName]selection.HealthCheck) bool {
	changed := false
	for name, check := range now {
		old, had := p.checks[name]
		isAsked := check.Port != 0
		if had == isAsked && old.Port == check.Port && maps.Equal(old.Endpoints, check.Endpoints) {
			continue
		}
		if !changed { // the map was handed out in a report: it stays as it was
			p.checks, changed = maps.Clone(p.checks), true
		}
		if isAsked {
			p.checks[name] = check
		} else {
			delete(p.checks, name)
		}
	}
	return changed
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
