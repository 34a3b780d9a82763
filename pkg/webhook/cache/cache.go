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
	c := &Cache{namespaces: newNamespaces(), nodes: newNodes()}
	var err error
	if c.namespaces.hasSynced, err = watchMetadata(ctx, informers, "Namespace", c.namespaces.put, c.namespaces.delete); err != nil {
		return nil, err
	}
	if c.nodes.hasSynced, err = watchMetadata(ctx, informers, "Node", c.nodes.put, c.nodes.delete); err != nil {
		return nil, err
	}
	return c, nil
}

// watchMetadata passes the objects of a kind to onUpdate, and the names of deleted ones to onDelete. hasSynced reports
// whether all initial objects have been passed.
func watchMetadata(
	ctx context.Context, informers cache.Informers, kind string, onUpdate func(*metav1.PartialObjectMetadata), onDelete func(name string),
) (hasSynced func() bool, err error) {
	// Without BlockUntilSynced(false), a running cache would block the caller here until it has all objects.
	informer, err := informers.GetInformer(ctx, metadataOf(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch metadata of %ss: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handlerOf(onUpdate, onDelete))
	if err != nil {
		return nil, fmt.Errorf("watch metadata of %ss: %w", kind, err)
	}
	return registration.HasSynced, nil
}

func handlerOf(onUpdate func(*metav1.PartialObjectMetadata), onDelete func(name string)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { passMetadata(object, onUpdate) },
		UpdateFunc: func(_, object any) { passMetadata(object, onUpdate) },
		DeleteFunc: func(object any) {
			// A deletion that was missed between two watches is reported later, with the last known object.
			if tombstone, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
				object = tombstone.Obj
			}
			passMetadata(object, func(last *metav1.PartialObjectMetadata) { onDelete(last.Name) })
		},
	}
}

// passMetadata calls handle with an object that keepMetadata has stripped. The cache contains no others.
func passMetadata(object any, handle func(*metav1.PartialObjectMetadata)) {
	if metadata, ok := object.(*metav1.PartialObjectMetadata); ok {
		handle(metadata)
	}
}

// HasSynced reports whether all Namespaces and Nodes are known. Once true it stays true: if the API server is down, the
// last known state is used.
func (c *Cache) HasSynced() bool { return c.namespaces.hasSynced() && c.nodes.hasSynced() }

// Namespace returns the defaults of the Namespace with that name. It waits briefly for an unknown one, which may have
// just been created, unless many reviews are waiting already.
func (c *Cache) Namespace(name string) rules.NamespaceDefaults { return c.namespaces.find(name) }

// Nodes returns the labels of all Nodes; nil until all Nodes are known. The result is immutable.
func (c *Cache) Nodes() *rules.NodeLabels { return c.nodes.snapshot() }
