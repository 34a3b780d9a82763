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
	// AutoTopology watches TopologySlices while they are published. Without a publisher it watches the EndpointSlices over
	// the proxies, if those cover nearly all nodes and no Service needs more than zones; and Nodes otherwise. If the
	// publisher stops renewing its Lease, its slices stay active until Nodes are added or removed: an outage of the
	// publisher alone, which all proxies notice at once, must not make them all list all Nodes. Until then label changes
	// on other nodes go unnoticed.
	AutoTopology NodeTopology = "auto"
	// SlicesTopology always watches TopologySlices.
	SlicesTopology NodeTopology = "slices"
	// ProxiesTopology always watches the EndpointSlices over the proxies. They contain only zones.
	ProxiesTopology NodeTopology = "proxies"
	// NodesTopology always watches Nodes.
	NodesTopology NodeTopology = "nodes"
)

// leaseInterval is the interval in which a publisher's Lease is read, or up to twice that because of jitter: 5,000
// proxies then send 170 to 330 requests a second together, for an object of some 500 bytes. As long as no source could
// be chosen, because the API server does not respond, leaseRetryInterval is the interval.
const (
	leaseInterval      = 15 * time.Second
	leaseRetryInterval = 2 * time.Second
)

// requestTimeout bounds the time of a single list request.
const requestTimeout = 5 * time.Second

// source is a source of other nodes' labels, or of measured demand.
type source struct {
	// resource identifies the source, also in logs and metrics: one of model.TopologyResources, or ServiceDemands.
	resource string
	requests []resourceRequest
	// hasZonesOnly reports whether the source has no labels other than zones.
	hasZonesOnly bool
}

// sourceFrom returns the source for one of model.TopologyResources.
func (w *Watcher) sourceFrom(resource string) source {
	result := source{resource: resource, hasZonesOnly: resource == model.TopologyFromProxies}
	for kind, name := range nodes.KindsOf(resource) {
		result.requests = append(result.requests, w.newRequest(kind, name))
	}
	return result
}

// publisher is the state of a publisher that renews a Lease while it publishes. It is not safe for concurrent use.
type publisher struct {
	leases rest.Interface
	name   model.ObjectName // of the Lease
	lease.Observed
}

// read reads the Lease. If that is forbidden, the Lease counts as missing. An error leaves the state unchanged.
func (p *publisher) read(ctx context.Context) error {
	object, err := lease.Get(ctx, p.leases, p.name.Namespace, p.name.Name)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	p.Observe(time.Now(), object)
	return nil
}

// countNodes returns the number of Nodes, by a list with a limit of one.
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

// chooseSource returns the source to watch: the current one unless there is a reason for another; nil if that is not
// known yet.
func (w *Watcher) chooseSource(ctx context.Context, active *source) *source {
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
	isActive := func(candidate source) bool { return active != nil && active.resource == candidate.resource }
	err := w.topologyPublisher.read(ctx)
	switch {
	case err == nil && w.topologyPublisher.IsFresh(w.topologyPublisher.For):
		return &slices
	case err != nil && !isActive(proxies): // a Service may now need labels that they lack
		return active
	case isActive(slices):
		if count, err := w.countNodes(ctx); err != nil || count == w.sliceNodeCount() {
			return active
		}
	}
	if w.proxiesCoverNodes(ctx, isActive(proxies)) {
		return &proxies
	}
	return &nodes
}

func (w *Watcher) sliceNodeCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.nodes.SliceNodeCount()
}

// untilNextChoice returns how long a choice is valid.
func untilNextChoice(chosen *source) time.Duration {
	if chosen == nil {
		return leaseRetryInterval
	}
	return wait.Jitter(leaseInterval, 1)
}
