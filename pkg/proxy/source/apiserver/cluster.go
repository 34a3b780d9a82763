package apiserver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

// Options say whose view of the cluster is wanted.
type Options struct {
	convert.View
	// NodeTopology selects the source of other nodes' labels; empty: Nodes. TopologyNamespace is where the publishers of
	// TopologySlices and ServiceDemands keep their Leases.
	NodeTopology      NodeTopology
	TopologyNamespace string
	// LastKnownGood are the versions that a running proxy has in force for refused objects. Load puts them in force, too.
	LastKnownGood []convert.Rejection
	// Log receives outages, and what else an operator should know.
	Log *slog.Logger
	// OnInterrupted is called when the API server no longer sends changes of a resource, with the time and the reason, and
	// Resumed when it does again: "services", "endpointslices", "servicecidrs", "nodes/NAME" (this node), "nodes" (the
	// others) or in their place "topologyslices", or "endpointslices/proxies" with "nodes/demand" and "nodes/control-plane";
	// "nodes/evacuated", "endpointslices/addresses" or "servicedemands".
	// The last known state stays in force meanwhile. Both may be nil, and must return at once.
	OnInterrupted func(resource string, since time.Time, err error)
	OnResumed     func(resource string)
	// OnTopologySource is called when other nodes' labels come from another resource: one of
	// model.TopologyResources, or an empty one while no Service asks for it. It may be nil, and returns at once.
	OnTopologySource func(resource string)
	// OnDemandRenewed is called with the time, by our own clock, of the last renewal of the Lease by the publisher of
	// ServiceDemands; zero while nobody publishes them, or no Service needs them. It may be nil, and returns at once.
	OnDemandRenewed func(at time.Time)
	// OnProxyAddresses is called when the slices of Proxies change where the nodes are: name, zone and address of each. If it is
	// nil, that is not followed.
	OnProxyAddresses func(nodes map[string]*model.Node)
}

// Watcher lists and watches the objects of a Kubernetes cluster, and delivers them as the proxy's state.
type Watcher struct {
	listWatches   listWatches
	options       Options
	proxies       proxySlices
	outages       *interruptions
	streams       []*resourceStream // of convert.Kinds but those on demand, and nodes.Reasons
	lastKnownGood map[model.Subject]any

	topologyPublisher, demandPublisher publisher
	// nodesVersion is the resource version at which a Node was last found missing.
	nodesVersion atomic.Pointer[string]

	mu    sync.Mutex
	state *state
	// timer is set to waking, the time when the state has something to do; zero if it has nothing.
	timer   *time.Timer
	timerAt time.Time
	// updateReady holds a signal while there may be something to deliver, missed while nodes may have vanished, and moved while
	// proxies may have.
	updateReady, nodesToCheck, moved notify.Signal
	onDemand                         []*onDemandWatch
}

// New returns a Watcher of the cluster at an API server. It sends no request yet.
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
		listWatches:  listWatches,
		options:      options,
		proxies:      proxySlices{slices: listWatches.byKind[convert.ProxySlices], service: options.Proxies},
		outages:      newOutages(options),
		state:        newState(options.Node),
		updateReady:  notify.NewSignal(),
		nodesToCheck: notify.NewSignal(),
		moved:        notify.NewSignal(),

		topologyPublisher: publisherOf(topologyslice.LeaseName),
		demandPublisher:   publisherOf(servicedemand.LeaseName),
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

// Run delivers the complete state as the first update as soon as every list is complete, and then what changes until
// the context ends. Then it returns nil at once; nothing is delivered after that. While the API server is
// away, the last known state stays in force. Run may be called once.
//
// What it can do without and the API server forbids to list counts as empty, and is taken up when it comes.
//
// deliver is called by one goroutine, and may take its time: what changes meanwhile comes as one update after it.
func (w *Watcher) Run(ctx context.Context, deliver func(convert.Update)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, stream := range w.streams {
		stream.follow(ctx)
	}
	if !w.waitForLists(ctx) {
		return nil
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	for _, d := range w.onDemand {
		watching.Go(func() { d.watch(ctx) })
	}
	watching.Go(func() { w.checkNodesLoop(ctx) })
	if w.options.OnProxyAddresses != nil && w.options.Proxies.Name != "" {
		watching.Go(func() { w.followAddresses(ctx) })
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

// waitForLists waits until all that must be listed is. It returns false if the context ended before.
func (w *Watcher) waitForLists(ctx context.Context) bool {
	for _, stream := range w.streams {
		if !stream.waitForList(ctx) {
			return false
		}
	}
	return true
}

// next returns what is to be delivered now, and whether there is anything. The first update is the complete state, even
// if it is empty. It waits until no Service is held back any more.
func (w *Watcher) next(started bool) (convert.Update, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !started && len(w.state.blocked) > 0 {
		return convert.Update{}, false
	}
	update, isNew := w.state.takeUpdate()
	return update, isNew || !started
}

// UID returns the UID of an object of a kind, for references to it; empty if there is none.
func (w *Watcher) UID(kind *convert.Kind, name model.ObjectName) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.objects[kind][name].uid
}

// Rejections returns the objects that are refused, sorted, with the versions that are in force.
func (w *Watcher) Rejections() []convert.Rejection {
	w.mu.Lock()
	defer w.mu.Unlock()
	return convert.SortRejections(w.state.rejections())
}
