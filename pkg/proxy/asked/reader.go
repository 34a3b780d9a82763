//go:build linux

package asked

import (
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Reader knows the frontends of Services whose load is bounded. It is a reader of the proxy's decisions.
type Reader struct {
	mutex      sync.Mutex // guards what follows; must not be held while waiting
	services   map[model.ObjectName][]model.Frontend
	isComplete bool
}

// NewReader returns a reader that knows of no Service.
func NewReader() *Reader { return &Reader{services: map[model.ObjectName][]model.Frontend{}} }

// Digest keeps the frontends.
func (*Reader) Digest(decisions []selection.Decision) any {
	var frontends []model.Frontend
	for i := range decisions {
		if d := &decisions[i]; d.Service.Topology.MaxLoad != 0 && !d.Service.IsHeadless {
			for _, owned := range d.Owned {
				frontends = append(frontends, owned.Frontend)
			}
		}
	}
	if frontends == nil {
		return nil
	}
	return frontends
}

// Accept keeps the frontends of a Service.
func (r *Reader) Accept(service model.ObjectName, digest any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if digest == nil {
		delete(r.services, service)
		return
	}
	r.services[service] = digest.([]model.Frontend)
}

// Lose drops frontends of a Service.
func (r *Reader) Lose(service model.ObjectName, lost []model.Frontend) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	left := slices.DeleteFunc(slices.Clone(r.services[service]), func(f model.Frontend) bool { return slices.Contains(lost, f) })
	if len(left) == 0 {
		delete(r.services, service)
		return
	}
	r.services[service] = left
}

// Synced says that all Services are known.
func (r *Reader) Synced(selection.Sync) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.isComplete = true
}

// wanted returns what to count; false before the first sync, when that is unknown.
func (r *Reader) wanted() (chosen map[model.Frontend]model.ObjectName, leftOut int, isKnown bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.isComplete {
		return nil, 0, false
	}
	chosen, leftOut = choose(r.services)
	return chosen, leftOut, true
}
