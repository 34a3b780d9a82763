package apiserver

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/lease"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// NodeTopology selects the source of other nodes' labels.
type NodeTopology string

const (
	// AutoTopology follows TopologySlices while somebody publishes them. Without a publisher it follows the EndpointSlices
	// over the proxies, while they are on nearly all nodes and no Service asks for more than zones; and Nodes otherwise. If
	// the publisher falls silent its slices stay in force until nodes have come or gone: an outage of the publisher alone,
	// which all proxies see at once, must not make them all list all Nodes. Until then label
	// changes on other nodes go unnoticed.
	AutoTopology NodeTopology = "auto"
	// SlicesTopology always follows TopologySlices.
	SlicesTopology NodeTopology = "slices"
	// ProxiesTopology always follows the EndpointSlices over the proxies. They know only zones.
	ProxiesTopology NodeTopology = "proxies"
	// NodesTopology follows Nodes.
	NodesTopology NodeTopology = "nodes"
)

// How often a publisher's Lease is read, and up to twice that: 5,000 proxies then ask 170 to 330 times a second
// together, for an object of some 500 bytes. As long as no source could be chosen, because the API server does not say,
// it is asked again after leaseAgain.
const (
	leaseEvery = 15 * time.Second
	leaseAgain = 2 * time.Second
)

// requestTimeout is how long the answer to a single list may take.
const requestTimeout = 5 * time.Second

// source is where we learn the labels of other nodes.
type source struct {
	// resource identifies it, in logs and metrics too: one of model.TopologyResources.
	resource string
	requests []resourceRequest
	// hasZonesOnly: it has no other labels.
	hasZonesOnly bool
}

// sourceFrom returns the source for one of model.TopologyResources.
func (w *Watcher) sourceFrom(resource string) source {
	from := source{resource: resource, hasZonesOnly: resource == model.TopologyFromProxies}
	for kind, name := range nodes.KindsOf(resource) {
		from.requests = append(from.requests, w.newRequest(kind, name))
	}
	return from
}

// publisher is who renews a Lease while something is published, as one proxy sees it. It is for one goroutine.
type publisher struct {
	leases rest.Interface
	name   model.ObjectName // of the Lease
	lease.Observed
}

// read reads the Lease. One that may not be read counts as none. An error leaves everything as it was.
func (p *publisher) read(ctx context.Context) error {
	read, err := lease.Get(ctx, p.leases, p.name.Namespace, p.name.Name)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	p.Observe(time.Now(), read)
	return nil
}

// countNodes returns how many Nodes there are, by a list of one.
func (w *Watcher) countNodes(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := w.listWatches.nodes.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	count := len(list.Items)
	if list.RemainingItemCount != nil {
		count += int(*list.RemainingItemCount)
	}
	return count, nil
}

// chooseSource returns the source to follow: the present one unless there is a reason for another; nil if it is not
// known yet.
func (w *Watcher) chooseSource(ctx context.Context, now *source) *source {
	nodes, slices, proxies := w.sourceFrom(model.TopologyFromNodes), w.sourceFrom(model.TopologyFromSlices),
		w.sourceFrom(model.TopologyFromProxies)
	switch w.options.NodeTopology {
	case SlicesTopology:
		return &slices
	case ProxiesTopology:
		return &proxies
	case AutoTopology:
	default:
		return &nodes
	}
	isFollowed := func(one source) bool { return now != nil && now.resource == one.resource }
	err := w.topologyPublisher.read(ctx)
	switch {
	case err == nil && w.topologyPublisher.IsFresh(w.topologyPublisher.For):
		return &slices
	case err != nil && !isFollowed(proxies): // those may be outgrown
		return now
	case isFollowed(slices):
		if count, err := w.countNodes(ctx); err != nil || count == w.describedNodes() {
			return now
		}
	}
	if w.doProxiesCoverNodes(ctx, isFollowed(proxies)) {
		return &proxies
	}
	return &nodes
}

func (w *Watcher) describedNodes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.nodes.SliceNodeCount()
}

// untilNextChoice is how long a choice holds.
func untilNextChoice(made *source) time.Duration {
	if made == nil {
		return leaseAgain
	}
	return wait.Jitter(leaseEvery, 1)
}
