//go:build linux

package localhost

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// MaxConnections is how many connections there may be at a time, of all Services together; fewer where the process may
// have few descriptors. A Service may have no more than there are places left: alone 2,048, beside another that wants as
// many 1,365 each. So there is room for every other Service, however many connections some of them have.
const MaxConnections = 4096

// descriptorsEach is how many descriptors a connection needs: two sockets, and both ends of a pipe for each direction.
const descriptorsEach = 6

// mostWith returns how many connections there may be with the given limit of descriptors. Half of them stay free:
// without a descriptor nothing reaches the kernel or the API server.
func mostWith(descriptors uint64) int {
	return int(max(1, min(MaxConnections, descriptors/2/descriptorsEach)))
}

// mostHere is mostWith for this process, whose limit Go has raised as far as permitted.
func mostHere() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return MaxConnections // the call cannot fail for this limit
	}
	return mostWith(limit.Cur)
}

// places bounds the connections.
type places struct {
	all   int
	mutex sync.Mutex
	free  int
	held  map[model.ObjectName]int
}

func newPlaces(all int) *places {
	return &places{all: all, free: all, held: map[model.ObjectName]int{}}
}

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
