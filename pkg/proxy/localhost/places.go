//go:build linux

package localhost

import (
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// MaxConnections is how many connections there may be at a time, of all Services together. A Service may have no more
// than there are places left: alone 2,048, beside another that wants as many 1,365 each. So there is room for every
// other Service, however many connections some of them have.
const MaxConnections = 4096

// places bounds the connections.
type places struct {
	mutex sync.Mutex
	free  int
	held  map[model.ObjectName]int
}

func newPlaces(all int) *places { return &places{free: all, held: map[model.ObjectName]int{}} }

// take takes a place for a connection of a Service, if it may have one.
func (p *places) take(service model.ObjectName) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.held[service] >= p.free {
		return false
	}
	p.held[service]++
	p.free--
	return true
}

// give gives a place back.
func (p *places) give(service model.ObjectName) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.free++
	if p.held[service]--; p.held[service] == 0 {
		delete(p.held, service)
	}
}
