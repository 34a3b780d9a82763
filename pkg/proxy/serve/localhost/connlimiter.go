//go:build linux

package localhost

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// MaxConnections is the maximum number of concurrent connections of all Services together; it is lower if the process
// has a low limit of file descriptors. A Service may have at most as many as there are free slots left: 2,048 alone, or
// 1,365 each if another one needs as many. So there is room for every other Service, however many connections some
// have.
const MaxConnections = 4096

// fdsPerConnection is the number of file descriptors of a connection: two sockets, and both ends of a pipe for each
// direction.
const fdsPerConnection = 6

// limitFor returns the maximum number of connections for a limit of file descriptors. Half of the descriptors stay
// free, because the kernel and the API server cannot be reached without one.
func limitFor(descriptors uint64) int {
	return int(max(1, min(MaxConnections, descriptors/2/fdsPerConnection)))
}

// processLimit returns limitFor of this process, whose soft limit Go raises to the hard limit.
func processLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return MaxConnections // getrlimit cannot fail for this resource
	}
	return limitFor(limit.Cur)
}

// connLimiter limits the number of connections.
type connLimiter struct {
	limit int
	mutex sync.Mutex
	free  int
	inUse map[model.ObjectName]int
}

func newConnLimiter(all int) *connLimiter {
	return &connLimiter{limit: all, free: all, inUse: map[model.ObjectName]int{}}
}

// acquire takes a slot for a connection of a Service. It reports whether there was one.
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

// release returns a slot.
func (p *connLimiter) release(service model.ObjectName) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.free++
	if p.inUse[service]--; p.inUse[service] == 0 {
		delete(p.inUse, service)
	}
}
