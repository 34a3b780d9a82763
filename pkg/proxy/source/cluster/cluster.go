package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// What waits for lists that may not come.
//
// nodeListPatience is how long a Service waits at most for the labels of the other nodes, from when its first version was held, and
// the first update, from when all other lists are complete. Usually it takes less than a second. If the list does not come at all,
// because nobody gave the proxy the right to list nodes, waiting would keep every change of those Services from their clients, and at
// the start every Service. So after this time they are served with what is known: an endpoint on an unknown node matches only `*`.
// What others do with their Services meanwhile makes nobody wait longer.
//
// nodeListInterval is the least time between the beginnings of two lists of the other nodes, because whoever may edit a Service decides
// when another one is needed, on every node. The first begins at once. A Service that is held just after one began must wait for the
// next, and that one must be complete before patience ends.
//
// serviceCIDRPatience is how long the start waits for ServiceCIDRs that the API server forbids to list.
const (
	nodeListPatience    = 10 * time.Second
	nodeListInterval    = 5 * time.Second
	serviceCIDRPatience = 10 * time.Second
)

// Options say whose view of the cluster is wanted.
type Options struct {
	// Node is the name of this node.
	Node string
	// ServiceProxyName is the name of this proxy in the label service.kubernetes.io/service-proxy-name. Empty: it serves the Services
	// without that label.
	ServiceProxyName string
	// Log is told about outages, and what else an operator should know.
	Log *slog.Logger
	// Interrupted is called when the API server stops to tell about a resource, with the time and the reason, and Resumed when it tells
	// about it again: "services", "endpointslices", "servicecidrs", "nodes/NAME" (this node) or "nodes" (the others). What was told last
	// stays in force meanwhile. Both may be nil, and return at once.
	Interrupted func(resource string, since time.Time, err error)
	Resumed     func(resource string)
}

// Cluster is a Kubernetes cluster as a source of the proxy's state.
type Cluster struct {
	resources resources
	options   Options
	outages   *outages
	pace      pace

	services, slices, serviceCIDRs, ownNode *informer
	// forbidden is closed when the API server has said for the first time that ServiceCIDRs may not be listed.
	forbidden chan struct{}

	mu    sync.Mutex
	state *state
	// fresh holds a token while there may be something to deliver, rewatch while other nodes may have to be watched or waited for.
	fresh, rewatch chan struct{}
}

// New returns the cluster at an API server. It asks nothing yet.
func New(config *rest.Config, options Options) (*Cluster, error) {
	resources, err := newResources(config, options)
	if err != nil {
		return nil, err
	}
	return newCluster(resources, options)
}

func newCluster(resources resources, options Options) (*Cluster, error) {
	forbidden := make(chan struct{})
	resources.serviceCIDRs = orNone(resources.serviceCIDRs, noServiceCIDRs, absence{
		missing: sync.OnceFunc(func() {
			options.Log.Info("this cluster has no ServiceCIDRs (they came with Kubernetes 1.33); addresses of no Service are left alone")
		}),
		forbidden: sync.OnceFunc(func() { close(forbidden) }),
	})
	c := &Cluster{
		resources: resources,
		options:   options,
		outages:   newOutages(options),
		pace:      pace{interval: nodeListInterval, patience: nodeListPatience},
		forbidden: forbidden,
		state:     newState(options.Node),
		fresh:     make(chan struct{}, 1),
		rewatch:   make(chan struct{}, 1),
	}
	var errs [4]error
	c.services, errs[0] = c.newInformer("services", resources.services, &corev1.Service{}, stripService(options.ServiceProxyName),
		serialized(c, (*state).putService, (*state).serviceGone))
	c.slices, errs[1] = c.newInformer("endpointslices", resources.slices, &discoveryv1.EndpointSlice{}, stripSlice(),
		serialized(c, (*state).putSlice, (*state).sliceGone))
	c.serviceCIDRs, errs[2] = c.newInformer("servicecidrs", resources.serviceCIDRs, &networkingv1.ServiceCIDR{}, stripServiceCIDR(),
		serialized(c, (*state).putServiceCIDR, (*state).serviceCIDRGone))
	c.ownNode, errs[3] = c.newInformer("nodes/"+options.Node, resources.ownNode, &corev1.Node{}, stripNode(),
		serialized(c, (*state).putOwn, (*state).ownGone))
	return c, errors.Join(errs[:]...)
}

func noServiceCIDRs() runtime.Object {
	return &networkingv1.ServiceCIDRList{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}
}

// Run delivers the complete state as the first update as soon as every list is complete, and then what changes until the context
// ends. It returns nil then, at once, and nothing is delivered or told about outages any more. While the API server is away, what it
// said last stays in force. Run may be called once.
//
// ServiceCIDRs that the API server forbids to list are waited for only for a while, and taken up when they come.
//
// deliver is called by one goroutine, and is free to take its time: what changes meanwhile comes as one update after it.
func (c *Cluster) Run(ctx context.Context, deliver func(convert.Update)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.outages.settleAll()
	defer cancel()
	for _, informer := range []*informer{c.services, c.slices, c.serviceCIDRs, c.ownNode} {
		informer.follow(ctx)
	}
	for _, informer := range []*informer{c.services, c.slices, c.ownNode} {
		if !informer.await(ctx) {
			return nil
		}
	}
	if !c.awaitServiceCIDRs(ctx) {
		return nil
	}
	c.change((*state).startWaiting)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { c.watchNodes(ctx) })
	for started := false; ; {
		update, isNew := c.next(started)
		if isNew && ctx.Err() == nil {
			deliver(update)
			started = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.fresh:
		}
	}
}

// awaitServiceCIDRs waits until ServiceCIDRs are listed, or patience is over and the API server has forbidden to list them: a role of
// before Kubernetes 1.33 does not name them, and without them only the addresses of no Service are treated otherwise. It returns false
// if the context ended before.
func (c *Cluster) awaitServiceCIDRs(ctx context.Context) bool {
	patience, cancel := context.WithTimeout(ctx, serviceCIDRPatience)
	defer cancel()
	if c.serviceCIDRs.await(patience) {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-c.serviceCIDRs.handled.Done():
		return true
	case <-c.forbidden:
		c.options.Log.Warn("ServiceCIDRs may not be listed; starting without them: addresses of no Service are left alone until they may")
		return true
	}
}

// next returns what is to be delivered now, and whether there is anything. The first update is the complete state, even if that is
// empty: it waits until no Service is held back any more, which the state sees to.
func (c *Cluster) next(started bool) (convert.Update, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !started && len(c.state.held) > 0 {
		return convert.Update{}, false
	}
	update, isNew := c.state.take()
	if !started {
		c.state.firstTaken()
	}
	return update, isNew || !started
}

// change lets the state decide about something that happened, and wakes those whom the decision concerns.
func (c *Cluster) change(decide func(*state)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes, coming, held := c.state.nodes, c.state.coming, len(c.state.held)
	c.state.now = time.Now()
	decide(c.state)
	if c.state.hasNews() {
		wake(c.fresh)
	}
	// Who is held while others are is not due before them.
	if c.state.nodes != nodes || c.state.coming != coming || held == 0 && len(c.state.held) > 0 {
		wake(c.rewatch)
	}
}

// wake leaves a token, unless one lies there already.
func wake(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// ServiceUID returns the UID of a Service of this proxy, for references to it, and whether there is such a Service.
func (c *Cluster) ServiceUID(name model.ObjectName) (uid string, known bool) {
	return uidOf[*model.Service](c.services, name.String())
}

// SliceUID returns the UID of an EndpointSlice, for references to it, and whether there is such a slice.
func (c *Cluster) SliceUID(name model.ObjectName) (uid string, known bool) {
	return uidOf[*model.EndpointSlice](c.slices, name.String())
}
