package daemon

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// origin is a source of changes. The number of sources is derived from these constants.
type origin int

const (
	fromObjects origin = iota
	fromInterfaces
	origins // their number
)

// startupBarrier passes changes to the proxy. Objects and interface addresses come from different goroutines, and it
// makes the first change the complete state, which the proxy requires. If something were missing, the first sync would
// delete valid state of an earlier proxy from the kernel, such as Services, or the addresses that serve node ports.
type startupBarrier struct {
	changes chan<- model.Change

	mutex    sync.Mutex
	reported [origins]bool
	waiting  model.Change // changes that arrived before all sources had reported
	released bool         // the first change was sent
}

// deliverAddrs delivers all current addresses of this machine's interfaces, and returns when the proxy has received
// them.
func (c *startupBarrier) deliverAddrs(ctx context.Context, addrs []netip.Addr) {
	c.send(ctx, fromInterfaces, model.Change{LocalAddrs: addrs})
}

// deliverAsync delivers state that is detected independently of the objects: where this process reaches the API server,
// which nodes are unreachable. The first sync does not wait for it.
func (c *startupBarrier) deliverAsync(ctx context.Context, change model.Change) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.released {
		c.handOff(ctx, change)
	} else {
		c.waiting = c.waiting.Merge(change)
	}
}

func (c *startupBarrier) send(ctx context.Context, from origin, change model.Change) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if change, ready := c.add(from, change); ready {
		c.handOff(ctx, change)
	}
}

func (c *startupBarrier) handOff(ctx context.Context, change model.Change) {
	select {
	case c.changes <- change:
	case <-ctx.Done():
	}
}

// add returns the change to send now, and whether there is one. The first one is sent even if it is empty: there may be
// no objects.
func (c *startupBarrier) add(from origin, change model.Change) (model.Change, bool) {
	if c.released {
		return change, !change.IsEmpty()
	}
	c.reported[from] = true
	c.waiting = c.waiting.Merge(change)
	if slices.Contains(c.reported[:], false) {
		return model.Change{}, false
	}
	change, c.waiting, c.released = c.waiting, model.Change{}, true
	return change, true
}
