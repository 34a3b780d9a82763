package daemon

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// origin is a source of changes.
type origin int

const (
	fromObjects origin = iota
	fromInterfaces
	numOrigins // the number of origins
)

// startupBarrier passes changes to the proxy. Objects and interface addresses come from different goroutines, and it
// makes the first change the complete state, which the proxy requires. If something were missing, the first sync would
// delete valid state of an earlier proxy from the kernel, such as Services, or the addresses that serve node ports.
type startupBarrier struct {
	changes chan<- model.Change

	mutex    sync.Mutex
	reported [numOrigins]bool
	waiting  model.Change // changes that arrived before all sources had reported
	released bool         // the first change was sent
}

// deliverAddrs delivers all current addresses of this machine's interfaces, and returns when the proxy has received
// them.
func (b *startupBarrier) deliverAddrs(ctx context.Context, addrs []netip.Addr) {
	b.send(ctx, fromInterfaces, model.Change{LocalAddrs: addrs})
}

// deliverAsync delivers state that is detected independently of the objects: where this process reaches the API server,
// which nodes are unreachable. The first sync does not wait for it.
func (b *startupBarrier) deliverAsync(ctx context.Context, change model.Change) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.released {
		b.handOff(ctx, change)
	} else {
		b.waiting = b.waiting.Merge(change)
	}
}

func (b *startupBarrier) send(ctx context.Context, src origin, change model.Change) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if change, ready := b.add(src, change); ready {
		b.handOff(ctx, change)
	}
}

func (b *startupBarrier) handOff(ctx context.Context, change model.Change) {
	select {
	case b.changes <- change:
	case <-ctx.Done():
	}
}

// add returns the change to send now, and whether there is one. The first one is sent even if it is empty: there may be
// no objects.
func (b *startupBarrier) add(src origin, change model.Change) (model.Change, bool) {
	if b.released {
		return change, !change.IsEmpty()
	}
	b.reported[src] = true
	b.waiting = b.waiting.Merge(change)
	if slices.Contains(b.reported[:], false) {
		return model.Change{}, false
	}
	change, b.waiting, b.released = b.waiting, model.Change{}, true
	return change, true
}
