package cache

import (
	"context"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// Cache stores a cluster's Namespaces and Nodes, its version, and whether demand is published. It is safe for
// concurrent use.
type Cache struct {
	namespaces namespaces
	nodes      nodes
	version    atomic.Pointer[version.Version]
	noDemand   atomic.Bool
}

// NewCache adds handlers for Namespaces and Nodes to a cache, which the caller starts. The cache must have been created
// with ByObject. NewCache does not block.
func NewCache(ctx context.Context, informers cache.Informers) (*Cache, error) {
	f := &Cache{namespaces: newNamespaces(), nodes: newNodes()}
	var err error
	if f.namespaces.listed, err = follow(ctx, informers, "Namespace", f.namespaces.put, f.namespaces.delete); err != nil {
		return nil, err
	}
	if f.nodes.listed, err = follow(ctx, informers, "Node", f.nodes.put, f.nodes.delete); err != nil {
		return nil, err
	}
	return f, nil
}

// follow passes the objects of a kind to put and gone. listed reports whether all initial objects have been passed.
func follow(
	ctx context.Context, informers cache.Informers, kind string, put func(*metav1.PartialObjectMetadata), gone func(name string),
) (listed func() bool, err error) {
	// Otherwise a running cache would block the caller here until it has all objects.
	informer, err := informers.GetInformer(ctx, metadataOf(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch metadata of %ss: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handlerOf(put, gone))
	if err != nil {
		return nil, fmt.Errorf("watch metadata of %ss: %w", kind, err)
	}
	return registration.HasSynced, nil
}

func handlerOf(put func(*metav1.PartialObjectMetadata), gone func(name string)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { passMetadata(object, put) },
		UpdateFunc: func(_, object any) { passMetadata(object, put) },
		DeleteFunc: func(object any) {
			// A deletion that was missed between two watches is reported later, with the last known object.
			if tombstone, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
				object = tombstone.Obj
			}
			passMetadata(object, func(last *metav1.PartialObjectMetadata) { gone(last.Name) })
		},
	}
}

// passMetadata calls take with an object that keepMetadata has stripped. The cache contains no others.
func passMetadata(object any, take func(*metav1.PartialObjectMetadata)) {
	if metadata, ok := object.(*metav1.PartialObjectMetadata); ok {
		take(metadata)
	}
}

// HasSynced reports whether all Namespaces and Nodes are known. Once true it stays true: if the API server is down, the
// last known state is used.
func (f *Cache) HasSynced() bool { return f.namespaces.listed() && f.nodes.listed() }

// Namespace returns the Namespace of that name. It waits briefly for an unknown one, which may have just been created,
// unless many reviews are waiting already.
func (f *Cache) Namespace(name string) rules.NamespaceDefaults { return f.namespaces.find(name) }

// Nodes returns the labels of all Nodes; nil until all Nodes are known. The result is immutable.
func (f *Cache) Nodes() *rules.NodeLabels { return f.nodes.snapshot() }
