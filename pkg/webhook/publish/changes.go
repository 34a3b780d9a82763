package publish

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/cluster"
)

// The kinds whose metadata is followed.
const (
	nodeKind      = "Node"
	serviceKind   = "Service"
	namespaceKind = "Namespace"
)

// kept are the objects that are followed, and what is kept of them.
func kept() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		cluster.MetadataOf(nodeKind):      {Transform: cluster.Strip},
		cluster.MetadataOf(serviceKind):   {Transform: cluster.Strip},
		cluster.MetadataOf(namespaceKind): {Transform: cluster.Strip},
		&topologyslice.TopologySlice{}:    {},
	}
}

// mapper knows the API names of the kinds. The usual one asks the API server, and a program could not start while that
// is away, or lacks the resource.
func mapper() meta.RESTMapper {
	all := meta.NewDefaultRESTMapper(nil)
	all.Add(corev1.SchemeGroupVersion.WithKind(nodeKind), meta.RESTScopeRoot)
	all.Add(corev1.SchemeGroupVersion.WithKind(namespaceKind), meta.RESTScopeRoot)
	all.Add(corev1.SchemeGroupVersion.WithKind(serviceKind), meta.RESTScopeNamespace)
	all.Add(topologyslice.Group.WithKind(topologyslice.Kind), meta.RESTScopeRoot)
	return all
}

// changes asks for a round when something that is published changes, and remembers since when changes wait.
type changes struct {
	mutex sync.Mutex
	since time.Time // zero while nothing waits
}

func (c *changes) ask(queue workqueue.TypedRateLimitingInterface[round]) {
	c.mutex.Lock()
	if c.since.IsZero() {
		c.since = time.Now()
	}
	c.mutex.Unlock()
	queue.AddAfter(round{}, gather)
}

// take returns since when changes wait, and forgets it; zero if none does.
func (c *changes) take() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	since := c.since
	c.since = time.Time{}
	return since
}

// putBack is for a round that failed.
func (c *changes) putBack(since time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.since.IsZero() || !since.IsZero() && since.Before(c.since) {
		c.since = since
	}
}

// Create is part of handler.TypedEventHandler.
func (c *changes) Create(_ context.Context, _ event.TypedCreateEvent[client.Object], queue workqueue.TypedRateLimitingInterface[round]) {
	c.ask(queue)
}

// Update is part of handler.TypedEventHandler. Most changes of Nodes are heartbeats, which end here.
func (c *changes) Update(_ context.Context, e event.TypedUpdateEvent[client.Object], queue workqueue.TypedRateLimitingInterface[round]) {
	if _, isSlice := e.ObjectNew.(*topologyslice.TopologySlice); !isSlice &&
		maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) &&
		maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) {
		return
	}
	c.ask(queue)
}

// Delete is part of handler.TypedEventHandler.
func (c *changes) Delete(_ context.Context, _ event.TypedDeleteEvent[client.Object], queue workqueue.TypedRateLimitingInterface[round]) {
	c.ask(queue)
}

// Generic is part of handler.TypedEventHandler.
func (c *changes) Generic(_ context.Context, _ event.TypedGenericEvent[client.Object], queue workqueue.TypedRateLimitingInterface[round]) {
	c.ask(queue)
}
