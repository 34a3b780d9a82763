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

// decided is what was decided about some Services.
type decided struct {
	owned []ruleset.Service // by name
	// digests are what the readers keep of those of them that were decided, by reader. Of the others lost are the
	// frontends that they had in the tables and are not to have any more.
	digests map[model.ObjectName][]any
	lost    map[model.ObjectName][]model.Frontend
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
	owned    ruleset.Service
	digests  []any // by reader; nil if none keeps anything
	flows    []selection.Flows
	check    selection.HealthCheck
	reasons  []PortReason
	plans    selection.Plans
	findings []model.Finding
}

func (p *Proxy) decideService(name model.ObjectName) decidedService {
	decisions := p.nodes.Decide(name, p.config.Families)
	service := decidedService{owned: ruleset.Service{Name: name}, digests: p.digest(decisions)}
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

// digest returns what the readers keep of decisions.
func (p *Proxy) digest(decisions []selection.Decision) []any {
	if len(decisions) == 0 {
		return nil
	}
	var digests []any
	for i, reader := range p.Readers {
		if digest := reader.Digest(decisions); digest != nil {
			if digests == nil {
				digests = make([]any, len(p.Readers))
			}
			digests[i] = digest
		}
	}
	return digests
}

// newDecided returns room for what is decided about so many Services.
func (p *Proxy) newDecided(services int) decided {
	all := decided{
		owned:   make([]ruleset.Service, 0, services),
		digests: make(map[model.ObjectName][]any, services),
		lost:    map[model.ObjectName][]model.Frontend{},
		flows:   make(map[model.ObjectName][]selection.Flows, services),
		checks:  make(map[model.ObjectName]selection.HealthCheck, services),
		reasons: make(map[model.ObjectName][]PortReason, services),
		plans:   map[model.ObjectName]selection.Plans{},

		findings: map[model.ObjectName][]model.Finding{},
	}
	return all
}

// gather puts together what was decided about some Services.
func (p *Proxy) gather(all *decided, services []decidedService) {
	for i := range services {
		service := &services[i]
		name := service.owned.Name
		all.digests[name] = service.digests
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

// handOver has the readers accept what the kernel has taken, by the names of the Services. Who loses comes first.
func (p *Proxy) handOver(decided decided) {
	for _, name := range slices.SortedFunc(maps.Keys(decided.lost), model.ObjectName.Compare) {
		for _, reader := range p.Readers {
			reader.Lose(name, decided.lost[name])
		}
	}
	for _, service := range decided.owned {
		if digests, isDecided := decided.digests[service.Name]; isDecided {
			p.acceptDigests(service.Name, digests)
		}
		if refused := p.refused[service.Name]; refused != nil {
			refused.held = service
		}
	}
}

func (p *Proxy) acceptDigests(name model.ObjectName, digests []any) {
	for i, reader := range p.Readers {
		var digest any
		if digests != nil {
			digest = digests[i]
		}
		reader.Accept(name, digest)
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

// readersSynced tells the readers that a sync is over.
func (p *Proxy) readersSynced(complete bool) {
	sync := selection.Sync{
		Complete:   complete,
		Scope:      selection.Scope{Pods: p.inForce.LocalTraffic.Prefixes, NodePorts: p.mirror.Surroundings().NodePortAddrs},
		LocalAddrs: p.cluster.LocalAddrs(),
	}
	for _, family := range p.config.Families {
		if p.config.NodePorts.All(family) {
			sync.Scope.OnAll = append(sync.Scope.OnAll, family)
		}
	}
	for _, reader := range p.Readers {
		reader.Synced(sync)
	}
}

func (p *Proxy) surroundings() ruleset.Surroundings {
	return ruleset.NewSurroundings(p.config, p.cluster.Self(), p.cluster.LocalAddrs(), p.cluster.ServiceCIDRs())
}
