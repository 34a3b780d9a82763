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
	mutex      sync.Mutex // guards the fields below; never held while waiting
	services   map[model.ObjectName][]model.Frontend
	isComplete bool
}

// NewFrontends returns a Frontends without Services.
func NewFrontends() *Frontends { return &Frontends{services: map[model.ObjectName][]model.Frontend{}} }

// Derive returns the frontends of a load-bounded Service; nil if there are none.
func (*Frontends) Derive(decisions []selection.Decision) any {
	var frontends []model.Frontend
	for i := range decisions {
		if d := &decisions[i]; d.Service.Topology.MaxLoad != 0 && !d.Service.IsHeadless {
			for _, owned := range d.Frontends {
				frontends = append(frontends, owned.Frontend)
			}
		}
	}
	if frontends == nil {
		return nil
	}
	return frontends
}

// OnApplied records the frontends of a Service.
func (r *Frontends) OnApplied(service model.ObjectName, derived any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if derived == nil {
		delete(r.services, service)
		return
	}
	r.services[service] = derived.([]model.Frontend)
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

// selection returns the frontends to count; false before the first sync, when they are unknown.
func (r *Frontends) selection() (chosen map[model.Frontend]model.ObjectName, skipped int, isKnown bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.isComplete {
		return nil, 0, false
	}
	chosen, skipped = selectFrontends(r.services)
	return chosen, skipped, true
}
