package apiserver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// Options configure a Watcher.
type Options struct {
	convert.View
	// NodeTopology selects the source of other nodes' labels; the default is NodesTopology. TopologyNamespace is the
	// namespace of the Leases of the publishers of TopologySlices and ServiceDemands.
	NodeTopology      NodeTopology
	TopologyNamespace string
	// LastKnownGood are the versions that a running proxy uses for invalid objects. Load uses them, too.
	LastKnownGood []convert.Rejection
	// Log receives interruptions and other messages for operators.
	Log *slog.Logger
	// OnInterrupted is called with the time and the error when the API server stops sending changes of a resource, and
	// OnResumed when it sends them again. Resources are "services", "endpointslices", "servicecidrs", "nodes/NAME" (this
	// node), "nodes" (the others) or instead "topologyslices", or "endpointslices/proxies" with "nodes/demand" and
	// "nodes/control-plane"; "nodes/evacuated", "endpointslices/addresses" or "servicedemands". The last known state stays
	// active during an interruption. Both may be nil, and must return at once.
	OnInterrupted func(resource string, since time.Time, err error)
	OnResumed     func(resource string)
	// OnTopologySource is called when another resource becomes the source of other nodes' labels: one of
	// model.TopologyResources, or an empty one while no Service needs them. It may be nil, and must return at once.
	OnTopologySource func(resource string)
	// OnDemandRenewed is called with the time, by our own clock, at which the publisher of ServiceDemands last renewed its
	// Lease; zero while none are published, or no Service needs them. It may be nil, and must return at once.
	OnDemandRenewed func(at time.Time)
	// OnProxyAddresses is called with the name, zone and addresses of each node when these change in the slices of
	// Proxies. If it is nil, those addresses are not watched.
	OnProxyAddresses func(nodes map[string]*model.Node)
}

// Watcher lists and watches the objects of a Kubernetes cluster, and delivers the state and its changes.
type Watcher struct {
	listWatches   listWatches
	options       Options
	proxies       proxySlices
	interruptions *interruptions
	streams       []*resourceStream // for convert.Kinds except those on demand, and nodes.DemotionKinds
	lastKnownGood map[model.Subject]any

	topologyPublisher, demandPublisher publisher
	// nodesVersion is the resource version at which a Node was last found missing.
	nodesVersion atomic.Pointer[string]

	mu    sync.Mutex
	state *state
	// timer fires at timerAt, the next deadline of the state; zero if there is none.
	timer   *time.Timer
	timerAt time.Time
	// updateReady is set when there may be an update to deliver, nodesToCheck when the existence of nodes must be checked,
	// and addressesChanged when the addresses of proxies may have changed.
	updateReady, nodesToCheck, addressesChanged notify.Signal
	onDemand                                    []*onDemandWatch
}

// New returns a Watcher of the cluster at an API server. It sends no request.
func New(config *rest.Config, options Options) (*Watcher, error) {
	listWatches, err := newListWatches(config, options)
	if err != nil {
		return nil, err
	}
	return newWatcher(listWatches, options), nil
}

func newWatcher(listWatches listWatches, options Options) *Watcher {
	if options.OnTopologySource == nil {
		options.OnTopologySource = func(string) {}
	}
	if options.OnDemandRenewed == nil {
		options.OnDemandRenewed = func(time.Time) {}
	}
	publisherOf := func(name string) publisher {
		return publisher{leases: listWatches.leases, name: model.ObjectName{Namespace: options.TopologyNamespace, Name: name}}
	}
	w := &Watcher{
		listWatches:      listWatches,
		options:          options,
		proxies:          proxySlices{slices: listWatches.byKind[convert.ProxySlices], service: options.Proxies},
		interruptions:    newInterruptions(options),
		state:            newState(options.Node),
		updateReady:      notify.NewSignal(),
		nodesToCheck:     notify.NewSignal(),
		addressesChanged: notify.NewSignal(),

		topologyPublisher: publisherOf(v1alpha1.TopologyLeaseName),
		demandPublisher:   publisherOf(v1alpha1.DemandLeaseName),
	}
	w.onDemand = []*onDemandWatch{otherNodes(w), measuredDemand(w)}
	for _, kind := range convert.Kinds {
		if kind.IsOnDemand {
			continue
		}
		resource := kind.Resource
		if kind == convert.Nodes {
			resource += "/" + options.Node
		}
		w.streams = append(w.streams, w.newStream(w.newRequest(kind, resource)))
	}
	for kind, resource := range nodes.DemotionKinds {
		w.streams = append(w.streams, w.newStream(w.newRequest(kind, resource)))
	}
	return w
}

// Run delivers the complete state as the first update once all lists are complete, and then the changes until the
// context ends. Then it returns nil at once, and delivers nothing after that. While the API server is unavailable, the
// last known state stays active. Run may be called once.
//
// An optional resource that the API server forbids to list counts as empty, and is watched once it may be listed.
//
// deliver is called by one goroutine and may block: changes during a call are delivered as one update after it.
func (w *Watcher) Run(ctx context.Context, deliver func(convert.Update)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, stream := range w.streams {
		stream.start(ctx)
	}
	if !w.waitForLists(ctx) {
		return nil
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	for _, d := range w.onDemand {
		watching.Go(func() { d.run(ctx) })
	}
	watching.Go(func() { w.checkNodesLoop(ctx) })
	if w.options.OnProxyAddresses != nil && w.options.Proxies.Name != "" {
		watching.Go(func() { w.watchAddresses(ctx) })
	}
	for started := false; ; {
		update, isNew := w.next(started)
		if isNew && ctx.Err() == nil {
			deliver(update)
			started = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.updateReady:
		}
	}
}

// waitForLists waits until all required lists are complete. It returns false if the context ended before.
func (w *Watcher) waitForLists(ctx context.Context) bool {
	for _, stream := range w.streams {
		if !stream.waitForList(ctx) {
			return false
		}
	}
	return true
}

// next returns the update to deliver, and whether there is one. The first update is the complete state, even if it is
// empty. It waits until no Service is blocked.
func (w *Watcher) next(started bool) (convert.Update, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !started && len(w.state.blocked) > 0 {
		return convert.Update{}, false
	}
	update, isNew := w.state.takeUpdate()
	return update, isNew || !started
}

// UID returns the UID of an object, for references to it; empty if there is none.
func (w *Watcher) UID(kind *convert.Kind, name model.ObjectName) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.objects[kind][name].uid
}

// Rejections returns the invalid objects, sorted, with the versions that are active.
func (w *Watcher) Rejections() []convert.Rejection {
	w.mu.Lock()
	defer w.mu.Unlock()
	return convert.SortRejections(w.state.rejections())
}
