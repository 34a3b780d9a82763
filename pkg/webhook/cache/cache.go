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

// Cache knows a cluster's Namespaces and Nodes, its version, and whether demand is published, and keeps them up to
// date. Several goroutines may call its methods at the same time.
type Cache struct {
	namespaces namespaces
	nodes      nodes
	version    atomic.Pointer[version.Version]
	noDemand   atomic.Bool
}

// NewCache begins to follow the Namespaces and Nodes through a cache, which the caller starts. The cache must have been
// made with ByObject. Follow does not wait for anything.
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

// follow hands over the objects of a kind one by one. The result reports whether those that there were at first have
// all been handed over.
func follow(
	ctx context.Context, informers cache.Informers, kind string, put func(*metav1.PartialObjectMetadata), gone func(name string),
) (listed func() bool, err error) {
	// Otherwise a running cache would block the caller here until it knows all objects.
	informer, err := informers.GetInformer(ctx, metadataOf(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("follow the metadata of %ss: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handlerOf(put, gone))
	if err != nil {
		return nil, fmt.Errorf("follow the metadata of %ss: %w", kind, err)
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

// passMetadata hands over what strip has kept. The cache has nothing else.
func passMetadata(object any, take func(*metav1.PartialObjectMetadata)) {
	if metadata, ok := object.(*metav1.PartialObjectMetadata); ok {
		take(metadata)
	}
}

// HasSynced reports whether all Namespaces and Nodes are known. Once true it stays true: the last known state stays in
// force while the API server does not answer.
func (f *Cache) HasSynced() bool { return f.namespaces.listed() && f.nodes.listed() }

// Namespace returns what is known about the Namespace of that name. It waits a little for one that may have just been
// made, unless many reviews wait already.
func (f *Cache) Namespace(name string) rules.NamespaceDefaults { return f.namespaces.find(name) }

// Nodes returns which labels the Nodes carry; nil until all Nodes are known. The value is for reading only, and never
// changes.
func (f *Cache) Nodes() *rules.NodeLabels { return f.nodes.snapshot() }
