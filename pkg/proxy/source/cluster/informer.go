package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// informer follows one resource. It never resyncs: what does not change is not handled again.
type informer struct {
	cache.SharedIndexInformer
	stream  *stream
	handled cache.DoneChecker // done when the handler has seen the complete list
}

// newInformer returns an informer that caches what transform makes of the objects, and hands them to handler one by one.
func (c *Cluster) newInformer(
	resource string, listWatch *cache.ListWatch, example runtime.Object, transform cache.TransformFunc, handler cache.ResourceEventHandler,
) (*informer, error) {
	stream := &stream{resource}
	shared := cache.NewSharedIndexInformerWithOptions(c.outages.observe(stream, listWatch), example, cache.SharedIndexInformerOptions{
		ObjectDescription: resource,
	})
	if err := shared.SetTransform(transform); err != nil {
		return nil, fmt.Errorf("preparing to follow %s: %w", resource, err)
	}
	// The observer has told the operator already, once for each outage; this is called for each attempt that was answered.
	err := shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		c.options.Log.Debug("following a resource failed; trying again", "resource", resource, "error", err)
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to follow %s: %w", resource, err)
	}
	registration, err := shared.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("preparing to follow %s: %w", resource, err)
	}
	return &informer{shared, stream, registration.HasSyncedChecker()}, nil
}

// follow begins to follow until the context ends, and does not wait for the end: a client that lets time pass because the API server
// has too many requests notices it only afterwards, up to a minute later (client-go v0.37, watchList in tools/cache/reflector.go).
// Until then it asks nothing and its handler only tells the state.
func (i *informer) follow(ctx context.Context) { go i.RunWithContext(ctx) }

// await waits until the handler has seen the complete list. It returns false if the context ended before.
func (i *informer) await(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-i.handled.Done():
		return true
	}
}

// serialized returns a handler that lets the state decide about each object. Informers run side by side.
func serialized[T any](
	c *Cluster, put func(s *state, before, now *object[T]), gone func(s *state, name model.ObjectName),
) cache.ResourceEventHandlerFuncs {
	return handle(
		func(before, now *object[T]) { c.change(func(s *state) { put(s, before, now) }) },
		func(name model.ObjectName) { c.change(func(s *state) { gone(s, name) }) },
	)
}

// uidOf returns the UID of an object in an informer's cache.
func uidOf[T any](from *informer, key string) (uid string, known bool) {
	found, known, err := from.GetStore().GetByKey(key)
	if err != nil || !known {
		return "", false
	}
	return string(found.(*object[T]).uid), true
}
