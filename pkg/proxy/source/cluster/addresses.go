package cluster

import (
	"context"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// AddressesResource is the name, in messages and outages, of what is followed to learn where to dial other nodes.
const AddressesResource = "endpointslices/addresses"

// addressesEvery is the least time between two reports of where other nodes are: a rollout changes the proxies one
// after the other.
const addressesEvery = time.Second

// addresses are where the proxies on all nodes are, by their own slices. Nothing waits for them, and no decision about
// a Service depends on them.
type addresses struct {
	tell func(map[string]*model.Node)
	news wake.Signal // holds a signal while there is something to tell

	mutex  sync.Mutex
	slices map[model.ObjectName][]*model.Node
}

// followAddresses follows where the proxies are, until the context ends.
func (w *Watcher) followAddresses(ctx context.Context) {
	a := &addresses{tell: w.options.ProxiesAt, news: wake.NewSignal(), slices: map[model.ObjectName][]*model.Node{}}
	observed := w.outages.observe(AddressesResource, w.listWatches.byKind[convert.ProxySlices], func(error) bool { return false })
	reflector := cache.NewReflectorWithOptions(observed, &discoveryv1.EndpointSlice{}, a, cache.ReflectorOptions{
		Name: AddressesResource, TypeDescription: AddressesResource,
	})
	pauses := refusals.DelayWithReset(clock.RealClock{}, refusalReset)
	go func() {
		_ = pauses.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			if err := reflector.ListAndWatchWithContext(ctx); err != nil {
				w.options.Log.Debug("following a resource failed; trying again", "resource", AddressesResource, "error", err)
			}
			return false, nil
		})
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.news:
			a.tell(a.all())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(addressesEvery):
		}
	}
}

// all returns the nodes of all slices. A node that is in several, one for each family, is dialled at its IPv4 address.
func (a *addresses) all() map[string]*model.Node {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	all := map[string]*model.Node{}
	for _, slice := range a.slices {
		for _, node := range slice {
			if before := all[node.Name]; before == nil || node.Addresses[0].Less(before.Addresses[0]) {
				all[node.Name] = node
			}
		}
	}
	return all
}

func (a *addresses) change(change func()) {
	a.mutex.Lock()
	change()
	a.mutex.Unlock()
	a.news.Send()
}

// Add takes in a slice that is new.
func (a *addresses) Add(sent any) error { return a.Update(sent) }

// Update takes in a version of a slice.
func (a *addresses) Update(sent any) error {
	a.change(func() { a.put(sent) })
	return nil
}

func (a *addresses) put(sent any) {
	slice := sent.(*discoveryv1.EndpointSlice)
	a.slices[model.ObjectName{Namespace: slice.Namespace, Name: slice.Name}] = convert.ProxyAddresses(slice)
}

// Delete takes in that a slice is gone.
func (a *addresses) Delete(sent any) error {
	from := sent.(metav1.Object)
	a.change(func() { delete(a.slices, model.ObjectName{Namespace: from.GetNamespace(), Name: from.GetName()}) })
	return nil
}

// Replace takes in a complete list.
func (a *addresses) Replace(list []any, _ string) error {
	a.change(func() {
		clear(a.slices)
		for _, sent := range list {
			a.put(sent)
		}
	})
	return nil
}

// Resync is for stores that hand over again what did not change.
func (a *addresses) Resync() error { return nil }
