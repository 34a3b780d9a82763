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

// processLimit returns the maximum number of connections of this process. Go raises its soft limit of file descriptors
// to the hard limit.
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

func newConnLimiter(limit int) *connLimiter {
	return &connLimiter{limit: limit, free: limit, inUse: map[model.ObjectName]int{}}
}

// acquire takes a slot for a connection of a Service. It reports whether there was one.
func (l *connLimiter) acquire(service model.ObjectName) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.inUse[service] >= l.free {
		return false
	}
	l.inUse[service]++
	l.free--
	return true
}

// release returns a slot.
func (l *connLimiter) release(service model.ObjectName) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.free++
	if l.inUse[service]--; l.inUse[service] == 0 {
		delete(l.inUse, service)
	}
}
