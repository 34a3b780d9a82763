package cluster

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

// NodeTopology says from where it is known where the other nodes are.
type NodeTopology string

const (
	// AutoTopology follows TopologySlices while somebody publishes them, and Nodes otherwise. If the publisher falls
	// silent the slices stay in force until nodes have come or gone: an outage of the publisher alone, which all proxies
	// see at once, must not make them all list all Nodes. That labels of other nodes change, they do not see meanwhile.
	AutoTopology NodeTopology = "auto"
	// SlicesTopology follows TopologySlices, whatever there is.
	SlicesTopology NodeTopology = "slices"
	// NodesTopology follows Nodes.
	NodesTopology NodeTopology = "nodes"
)

// How often the publisher's Lease is read, and up to twice that: 5,000 proxies then ask 170 to 330 times a second
// together, for an object of some 500 bytes. An API server that does not say is asked again sooner, and given so long.
const (
	leaseEvery    = 15 * time.Second
	leaseAgain    = 2 * time.Second
	leasePatience = 5 * time.Second
)

// source is from where it is known where the other nodes are.
type source struct {
	kind      *convert.Kind
	resource  string // in messages and outages
	listWatch *cache.ListWatch
}

func (w *Watcher) nodesSource() source {
	return source{convert.OtherNodes, otherNodes, w.listWatches.others}
}

// slicesSource has the resource's own name, as the API has it.
func (w *Watcher) slicesSource() source {
	return source{convert.TopologySlices, topologyslice.Resource, w.listWatches.topology}
}

// publication is the publisher's Lease, as one proxy sees it.
type publication struct {
	leases    rest.Interface
	namespace string
	// nodes are for counting.
	nodes metadata.Getter

	renewed  time.Time     // as the Lease said last
	changed  time.Time     // when it did not say so before, by our own clock; zero at first
	lifetime time.Duration // how long it is good for
}

// isLive reports whether somebody publishes. A clock of another machine decides once only, at first: after that it
// matters whether the Lease is renewed.
func (p *publication) isLive(ctx context.Context, now time.Time) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, leasePatience)
	defer cancel()
	var lease coordinationv1.Lease
	err := p.leases.Get().Namespace(p.namespace).Resource("leases").Name(topologyslice.LeaseName).Do(ctx).Into(&lease)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, err
	case lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil:
		return false, nil
	}
	p.lifetime = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	if renewed := lease.Spec.RenewTime.Time; !renewed.Equal(p.renewed) {
		isFirst := p.renewed.IsZero()
		p.renewed, p.changed = renewed, now
		if isFirst {
			p.changed = renewed
		}
	}
	return now.Sub(p.changed) < p.lifetime, nil
}

// count returns how many Nodes there are, by a list of one.
func (p *publication) count(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, leasePatience)
	defer cancel()
	list, err := p.nodes.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	count := len(list.Items)
	if list.RemainingItemCount != nil {
		count += int(*list.RemainingItemCount)
	}
	return count, nil
}

// chooseSource returns from where to know it: what is followed now unless there is a reason for another; nil if it is not
// known yet.
func (w *Watcher) chooseSource(ctx context.Context, now *source) *source {
	nodes, slices := w.nodesSource(), w.slicesSource()
	switch w.options.NodeTopology {
	case SlicesTopology:
		return &slices
	case AutoTopology:
	default:
		return &nodes
	}
	isLive, err := w.publication.isLive(ctx, time.Now())
	switch {
	case err != nil:
		return now
	case isLive:
		return &slices
	case now == nil || now.kind != convert.TopologySlices:
		return &nodes
	}
	count, err := w.publication.count(ctx)
	if err != nil || count == w.describedNodes() {
		return now
	}
	return &nodes
}

func (w *Watcher) describedNodes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.described()
}

// untilNextChoice is how long a choice holds.
func untilNextChoice(made *source) time.Duration {
	if made == nil {
		return leaseAgain
	}
	return wait.Jitter(leaseEvery, 1)
}
