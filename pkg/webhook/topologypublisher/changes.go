package topologypublisher

import (
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// The kinds whose metadata is watched.
const (
	nodeKind      = "Node"
	serviceKind   = "Service"
	namespaceKind = "Namespace"
)

// metadataOf selects the metadata of a kind. A cache for it does not read the rest of the objects.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kind}}
}

// cacheOptions returns the object types to cache, and the transforms that strip them.
func cacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		metadataOf(nodeKind):      {Transform: stripWith(func(m *metav1.PartialObjectMetadata) { m.Annotations = nil })},
		metadataOf(serviceKind):   {Transform: stripWith(keepKeyAnnotations)},
		metadataOf(namespaceKind): {Transform: stripWith(keepKeyAnnotations)},
		&v1alpha1.TopologySlice{}: {},
	}
}

// stripWith keeps only the name, the version, the labels and the annotations of an object; strip then removes more.
func stripWith(strip func(*metav1.PartialObjectMetadata)) func(any) (any, error) {
	return func(object any) (any, error) {
		full, isMetadata := object.(*metav1.PartialObjectMetadata)
		if !isMetadata {
			return object, nil // a tombstone
		}
		stripped := &metav1.PartialObjectMetadata{TypeMeta: full.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, Namespace: full.Namespace, UID: full.UID, ResourceVersion: full.ResourceVersion,
			Labels: full.Labels, Annotations: full.Annotations,
		}}
		strip(stripped)
		return stripped, nil
	}
}

// keepKeyAnnotations keeps only the annotations that name topology keys.
func keepKeyAnnotations(metadata *metav1.PartialObjectMetadata) {
	metadata.Labels = nil
	var kept map[string]string
	for _, annotation := range [...]string{policy.TopologyKeysAnnotation, policy.DefaultTopologyKeysAnnotation} {
		if value, has := metadata.Annotations[annotation]; has {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[annotation] = strings.Clone(value)
		}
	}
	metadata.Annotations = kept
}

// mapper returns a static mapper for the kinds. The default one queries the API server, so a program could not start
// while that is down or lacks the resource.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind(nodeKind), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind(namespaceKind), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind(serviceKind), meta.RESTScopeNamespace)
	m.Add(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.TopologySliceKind), meta.RESTScopeRoot)
	return m
}

// debouncer holds the time of the first change that no round has processed; it is empty if there is none.
type debouncer chan time.Time

func (d debouncer) enqueue() {
	select {
	case d <- time.Now():
	default:
	}
}

// handler enqueues changes of published data. Most updates of Nodes are heartbeats, which it ignores.
func (d debouncer) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { d.enqueue() },
		UpdateFunc: func(oldObject, newObject any) {
			old, isMetadata := oldObject.(*metav1.PartialObjectMetadata)
			updated, _ := newObject.(*metav1.PartialObjectMetadata)
			if !isMetadata || !maps.Equal(old.Labels, updated.Labels) || !maps.Equal(old.Annotations, updated.Annotations) {
				d.enqueue()
			}
		},
		DeleteFunc: func(any) { d.enqueue() },
	}
}
