package publish

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

// The kinds whose metadata is followed.
const (
	nodeKind      = "Node"
	serviceKind   = "Service"
	namespaceKind = "Namespace"
)

// metadataOf stands for the metadata of the objects of a kind. A cache that is asked for it never reads the rest.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kind}}
}

// kept are the objects that are followed, and what is kept of them.
func kept() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		metadataOf(nodeKind):           {Transform: stripTo(func(m *metav1.PartialObjectMetadata) { m.Annotations = nil })},
		metadataOf(serviceKind):        {Transform: stripTo(keepKeys)},
		metadataOf(namespaceKind):      {Transform: stripTo(keepKeys)},
		&topologyslice.TopologySlice{}: {},
	}
}

// stripTo keeps only the name, the version, the labels and the annotations of an object; strip then removes more.
func stripTo(strip func(*metav1.PartialObjectMetadata)) func(any) (any, error) {
	return func(object any) (any, error) {
		full, isMetadata := object.(*metav1.PartialObjectMetadata)
		if !isMetadata {
			return object, nil // what stands for an object that is gone
		}
		left := &metav1.PartialObjectMetadata{TypeMeta: full.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, Namespace: full.Namespace, UID: full.UID, ResourceVersion: full.ResourceVersion,
			Labels: full.Labels, Annotations: full.Annotations,
		}}
		strip(left)
		return left, nil
	}
}

// keepKeys keeps only the annotations that name topology keys.
func keepKeys(of *metav1.PartialObjectMetadata) {
	of.Labels = nil
	var left map[string]string
	for _, annotation := range [...]string{policy.TopologyKeysAnnotation, policy.DefaultTopologyKeysAnnotation} {
		if value, has := of.Annotations[annotation]; has {
			if left == nil {
				left = map[string]string{}
			}
			left[annotation] = strings.Clone(value)
		}
	}
	of.Annotations = left
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
