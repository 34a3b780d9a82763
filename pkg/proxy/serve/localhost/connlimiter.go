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

// fdsPerConnection is how many descriptors a connection needs: two sockets, and both ends of a pipe for each direction.
const fdsPerConnection = 6

// limitFor returns how many connections there may be with the given limit of descriptors. Half of them stay free:
// without a descriptor nothing reaches the kernel or the API server.
func limitFor(descriptors uint64) int {
	return int(max(1, min(MaxConnections, descriptors/2/fdsPerConnection)))
}

// processLimit is mostWith for this process, whose limit Go has raised as far as permitted.
func processLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return MaxConnections // the call cannot fail for this limit
	}
	return limitFor(limit.Cur)
}

// connLimiter bounds the connections.
type connLimiter struct {
	limit int
	mutex sync.Mutex
	free  int
	inUse map[model.ObjectName]int
}

func newConnLimiter(all int) *connLimiter {
	return &connLimiter{limit: all, free: all, inUse: map[model.ObjectName]int{}}
}

// acquire takes a place for a connection of a Service, if it may have one.
func (p *connLimiter) acquire(service model.ObjectName) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.inUse[service] >= p.free {
		return false
	}
	p.inUse[service]++
	p.free--
	return true
}

// release gives a place back.
func (p *connLimiter) release(service model.ObjectName) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.free++
	if p.inUse[service]--; p.inUse[service] == 0 {
		delete(p.inUse, service)
	}
}
