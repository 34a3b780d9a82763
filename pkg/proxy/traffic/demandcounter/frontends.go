//go:build linux

package demandcounter

import (
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Frontends tracks the frontends of load-bounded Services. It is a handler of the proxy's decisions.
type Frontends struct {
	mutex    sync.Mutex // guards the fields below; never held while waiting
	services map[model.ObjectName][]model.Frontend
	// measured are the Services that use measured demand.
	measured   map[model.ObjectName]bool
	isComplete bool
}

// NewFrontends returns a Frontends without Services.
func NewFrontends() *Frontends {
	return &Frontends{services: map[model.ObjectName][]model.Frontend{}, measured: map[model.ObjectName]bool{}}
}

// boundedService is a load-bounded Service.
type boundedService struct {
	frontends  []model.Frontend
	isMeasured bool
}

// Derive returns a load-bounded Service; nil if it has no frontends.
func (*Frontends) Derive(decisions []selection.Decision) any {
	var derived boundedService
	for i := range decisions {
		if d := &decisions[i]; d.Service.Topology.MaxLoad != 0 && !d.Service.IsHeadless {
			derived.isMeasured = d.Service.Topology.Measured
			for _, owned := range d.Frontends {
				derived.frontends = append(derived.frontends, owned.Frontend)
			}
		}
	}
	if derived.frontends == nil {
		return nil
	}
	return derived
}

// OnApplied records the frontends of a Service.
func (r *Frontends) OnApplied(service model.ObjectName, derived any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if derived == nil {
		delete(r.services, service)
		delete(r.measured, service)
		return
	}
	bounded := derived.(boundedService)
	r.services[service] = bounded.frontends
	r.measured[service] = bounded.isMeasured
}

// OnFrontendsLost removes frontends from a Service.
func (r *Frontends) OnFrontendsLost(service model.ObjectName, lost []model.Frontend) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	remaining := slices.DeleteFunc(slices.Clone(r.services[service]), func(f model.Frontend) bool { return slices.Contains(lost, f) })
	if len(remaining) == 0 {
		delete(r.services, service)
		return
	}
	r.services[service] = remaining
}

// OnSynced marks the set of Services as complete.
func (r *Frontends) OnSynced(selection.SyncState) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.isComplete = true
}

// selected are the frontends to count.
type selected struct {
	owners   map[model.Frontend]model.ObjectName
	measured map[model.ObjectName]bool // those of the owners that use measured demand
	skipped  int
}

// selection returns the frontends to count; false before the first sync, when they are unknown.
func (r *Frontends) selection() (chosen selected, isKnown bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.isComplete {
		return selected{}, false
	}
	chosen.measured = map[model.ObjectName]bool{}
	chosen.owners, chosen.skipped = selectFrontends(r.services)
	for _, service := range chosen.owners {
		if r.measured[service] {
			chosen.measured[service] = true
		}
	}
	return chosen, true
}
