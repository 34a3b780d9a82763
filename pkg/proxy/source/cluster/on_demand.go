package cluster

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// How long what only some Services need is followed after the last of them is gone: a user who may edit a Service decides
// when it is listed, on every node, and a list is a large answer. Each time it is needed again it is followed twice as
// long after that, up to demandLingerMax: whatever users write, a proxy lists it at most twelve times on its first day, and
// twice a day after that. Another topology key costs no list, for all labels of a node are kept.
const (
	demandLinger    = 30 * time.Second
	demandLingerMax = 12 * time.Hour
)

// onDemand is a resource that is followed while a Service needs it.
type onDemand struct {
	watcher   *Watcher
	kind      *convert.Kind
	resource  string
	listWatch *cache.ListWatch
	// need holds a token when it may have come into need, or gone out of it.
	need     <-chan struct{}
	isNeeded func(*state) bool
	// drop takes back what was delivered, unless it is needed again, and reports whether it has.
	drop func(*state) bool
	// waitNoLonger is called if the first list does not come within nodePatience; nil if nothing waits for it.
	waitNoLonger func()
}

// watch follows the resource while a Service needs it, until the context ends.
func (d *onDemand) watch(ctx context.Context) {
	lingers := demandLinger
	for ctx.Err() == nil {
		if d.isNeededNow() {
			d.follow(ctx, lingers)
			lingers = min(2*lingers, demandLingerMax)
			continue
		}
		select {
		case <-ctx.Done():
		case <-d.need:
		}
	}
}

// follow lists and watches until no Service has needed it for as long as it lingers.
func (d *onDemand) follow(ctx context.Context, lingers time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := d.watcher.newStream(d.kind, d.resource, d.listWatch)
	followed.follow(ctx)
	patience, linger := time.NewTimer(nodePatience), time.NewTimer(lingers)
	defer patience.Stop()
	defer linger.Stop()
	linger.Stop()
	for listed := followed.listed; ; {
		select {
		case <-ctx.Done():
			return
		case <-listed:
			patience.Stop()
			listed = nil
		case <-patience.C:
			if d.waitNoLonger != nil {
				d.waitNoLonger()
			}
		case <-d.need:
			if linger.Stop(); !d.isNeededNow() {
				linger.Reset(lingers)
			}
		case <-linger.C:
			if d.dropNow(cancel) {
				d.watcher.outages.forget(d.resource)
				return
			}
		}
	}
}

// dropNow drops what was followed, and ends its stream: what the Reflector hands over from then on is not taken.
func (d *onDemand) dropNow(end context.CancelFunc) (isDropped bool) {
	d.watcher.change(func(s *state) {
		if isDropped = d.drop(s); isDropped {
			end()
		}
	})
	return isDropped
}

func (d *onDemand) isNeededNow() bool {
	d.watcher.mu.Lock()
	defer d.watcher.mu.Unlock()
	return d.isNeeded(d.watcher.state)
}
