package apiserver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// listBackoff are the pauses between two attempts to list and watch, and listBackoffReset is the time after which they
// restart from the first. Both are client-go's, and so kube-proxy's (client-go v0.37, tools/cache/reflector.go). A
// request without a response never causes such a pause: see retryUntilResponse.
var listBackoff = wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 38, Cap: 30 * time.Second}

const listBackoffReset = 2 * time.Minute

// missingResourceRetry is the pause before a missing resource is listed again, because the API server may have been
// upgraded. Jitter makes it up to twice as long. A successful watch is renewed as often.
const missingResourceRetry = 5 * time.Minute

// object is the stripped form of an object that the API server sent.
type object struct {
	name     model.ObjectName // without a namespace if the kind is cluster-scoped
	uid      string
	value    any             // nil if the object is not ours to serve, or invalid
	rejected []model.Finding // why the object is invalid; empty if it is valid
	ignored  []model.Finding // which parts of it have no effect
	// isForOtherProxy reports whether another proxy serves the object.
	isForOtherProxy bool
}

// resourceStream watches the objects of a kind. It is the store of the Reflector that lists and watches them.
type resourceStream struct {
	resourceRequest
	watcher *Watcher

	names  interner        // used by the Reflector's goroutine only
	done   <-chan struct{} // closed when the stream should end: no more changes reach the state
	exists atomic.Bool     // the API server has listed the resource
	listed chan struct{}   // closed when the state has the first list, or works without it

	closeListed func()
}

// resourceRequest selects objects at the API server.
type resourceRequest struct {
	kind      *convert.Kind
	resource  string // in log messages and interruptions
	listWatch *cache.ListWatch
}

func (w *Watcher) newRequest(kind *convert.Kind, resource string) resourceRequest {
	return resourceRequest{kind, resource, w.listWatches.byKind[kind]}
}

func (w *Watcher) newStream(request resourceRequest) *resourceStream {
	s := &resourceStream{watcher: w, resourceRequest: request, listed: make(chan struct{})}
	s.closeListed = sync.OnceFunc(func() { close(s.listed) })
	return s
}

// start starts to watch until the context ends, and does not wait for the end: a Reflector that backs off because the
// API server has too many requests notices it only afterwards, up to a minute later (client-go v0.37, watchList in
// reflector.go). Until then it sends no request, and the objects that it delivers are ignored.
func (s *resourceStream) start(ctx context.Context) {
	s.done = ctx.Done()
	observed := s.watcher.interruptions.observe(s.resource, s.listWatch, s.isMissing)
	reflector := cache.NewReflectorWithOptions(observed, s.kind.New(), s, cache.ReflectorOptions{
		Name: s.resource, TypeDescription: s.resource,
	})
	pauses := listBackoff.DelayWithReset(clock.RealClock{}, listBackoffReset)
	go func() {
		// Not RunWithContext: it logs each failed attempt, but each interruption should be logged once.
		_ = pauses.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			if err := reflector.ListAndWatchWithContext(ctx); err != nil {
				s.onError(ctx, err)
			}
			return false, nil
		})
	}()
}

// onError handles an error of a list or watch. An optional resource counts as empty until it may be listed.
func (s *resourceStream) onError(ctx context.Context, err error) {
	s.watcher.options.Log.Debug("failed to list or watch a resource; retrying", "resource", s.resource, "error", err)
	switch {
	case s.isMissing(err):
		s.markUnavailable(ctx, slog.LevelInfo, s.kind.Optional.Missing)
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(missingResourceRetry, 1)):
		}
	case s.kind.Optional != nil && apierrors.IsForbidden(err) && !s.exists.Load():
		s.markUnavailable(ctx, slog.LevelWarn, s.kind.Optional.Forbidden)
	}
}

// isMissing reports whether the error means that the cluster does not have this optional resource. Once the resource
// has existed, this is an error like any other: one of several API servers may be an older one, and the objects from
// the others stay active.
func (s *resourceStream) isMissing(err error) bool {
	return s.kind.Optional != nil && apierrors.IsNotFound(err) && !s.exists.Load()
}

// markUnavailable treats the resource as one without objects, and logs the reason once.
func (s *resourceStream) markUnavailable(ctx context.Context, level slog.Level, message string) {
	select {
	case <-s.listed:
	default:
		s.watcher.options.Log.Log(ctx, level, message)
		s.change(func(state *state) { state.markUnavailable(s.kind) })
		s.closeListed()
	}
}

// transform strips an object to the part that is kept. The Reflector calls it as soon as an object of a long list
// arrives, and later passes on the result, which transform then returns unchanged.
func (s *resourceStream) transform(sent any) *object {
	if stripped, isStripped := sent.(*object); isStripped {
		return stripped
	}
	received := sent.(convert.Object) // of the kind's type, which the Reflector has checked
	view := s.watcher.options.View
	value, errs := s.kind.Convert(received, view)
	name := model.ObjectName{Namespace: s.names.string(received.GetNamespace()), Name: received.GetName()}
	uid := string(received.GetUID())
	stripped := &object{
		name: name, uid: uid, value: s.names.value(value), rejected: convert.ValidationFindings(s.kind, name, uid, errs),
		isForOtherProxy: s.kind.ForOtherProxy != nil && s.kind.ForOtherProxy(received, view),
	}
	if len(errs) == 0 {
		stripped.ignored = convert.ObjectKey{Kind: s.kind, Name: name}.IgnoredFindings("", received, value, view)
	}
	return stripped
}

// Transformer makes the Reflector strip the objects that it collects: in a large cluster they are many times as large
// as the part that is kept.
func (s *resourceStream) Transformer() cache.TransformFunc {
	return func(sent any) (any, error) { return s.transform(sent), nil }
}

// Add processes a new object.
func (s *resourceStream) Add(sent any) error { return s.Update(sent) }

// Update processes a version of an object.
func (s *resourceStream) Update(sent any) error {
	object := s.transform(sent)
	s.change(func(state *state) { state.put(s.kind, object) })
	return nil
}

// Delete processes the deletion of an object.
func (s *resourceStream) Delete(sent any) error {
	deleted := sent.(metav1.Object)
	s.recordVersion(deleted.GetResourceVersion())
	name := model.ObjectName{Namespace: deleted.GetNamespace(), Name: deleted.GetName()}
	s.change(func(state *state) { state.remove(s.kind, name) })
	return nil
}

// Replace processes a complete list as one change.
func (s *resourceStream) Replace(list []any, version string) error {
	s.exists.Store(true)
	s.recordVersion(version)
	objects := make([]*object, len(list))
	for i, sent := range list {
		objects[i] = s.transform(sent)
	}
	s.change(func(state *state) { state.replace(s.kind, objects) })
	s.closeListed()
	return nil
}

// recordVersion records the version at which a Node lost the watched label, or was deleted.
func (s *resourceStream) recordVersion(version string) {
	if version != "" && nodes.IsDemotionKind(s.kind) {
		s.watcher.nodesVersion.Store(&version)
	}
}

// Resync does nothing: it is for stores that deliver unchanged objects again.
func (s *resourceStream) Resync() error { return nil }

// change applies a function to the state, unless the stream has ended.
func (s *resourceStream) change(apply func(*state)) {
	s.watcher.change(func(state *state) {
		select {
		case <-s.done:
		default:
			apply(state)
		}
	})
}

// waitForList waits until the state has the complete list. It returns false if the context ended before.
func (s *resourceStream) waitForList(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.listed:
		return true
	}
}
