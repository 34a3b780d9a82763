package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// interruption is a period in which the API server sends no changes of a resource.
type interruption struct {
	since time.Time // when the first request failed
	err   error     // of that request
}

// interruptions are the current interruptions. Each is logged when it begins and when it ends, regardless of how often
// clients retry. Only one client at a time watches a resource.
//
// Only requests count. Clients start a new watch within two seconds after one ends, so an unavailable server is
// noticed. A server that accepts each watch and breaks it at once is not. Clients then list, at least once a minute
// (client-go v0.37, tools/cache/reflector.go), and so changes still arrive.
type interruptions struct {
	log           *slog.Logger
	onInterrupted func(resource string, since time.Time, err error)
	onResumed     func(resource string)

	mu      sync.Mutex
	current map[string]interruption // by resource
}

func newInterruptions(options Options) *interruptions {
	i := &interruptions{log: options.Log, onInterrupted: options.OnInterrupted, onResumed: options.OnResumed,
		current: map[string]interruption{}}
	if i.onInterrupted == nil {
		i.onInterrupted = func(string, time.Time, error) {}
	}
	if i.onResumed == nil {
		i.onResumed = func(string) {}
	}
	return i
}

// observe returns a ListWatch that repeats requests until they get a response, and records their results. An
// interruption begins with a failed request and ends with a watch: a list alone brings no changes. An error for which
// isExpected returns true does not start one.
func (i *interruptions) observe(resource string, listWatch *cache.ListWatch, isExpected func(error) bool) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := retryUntilResponse(ctx, i.onNoResponse(ctx, resource), func() (runtime.Object, error) {
				return listWatch.ListWithContext(ctx, options)
			})
			if isInterruption(err) && !isExpected(err) {
				i.begin(ctx, resource, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watched, err := retryUntilResponse(ctx, i.onNoResponse(ctx, resource), func() (watch.Interface, error) {
				return emptyWatchAsError(listWatch.WatchWithContext(ctx, options))
			})
			switch {
			case err == nil:
				if ctx.Err() == nil {
					i.end(resource, "watch resumed")
				}
			case isInterruption(err) && !isExpected(err) && !isListNext(options, err):
				i.begin(ctx, resource, err)
			}
			return watched, err
		},
	}
}

// errNoResponse is the error of a watch whose connection broke or timed out before the API server responded.
var errNoResponse = errors.New("connection closed before a response arrived")

// emptyWatchType is the type of the watch that rest.Request.Watch returns in that case instead of an error.
var emptyWatchType = reflect.TypeOf(watch.NewEmptyWatch())

// emptyWatchAsError returns an error instead of such a watch. Otherwise it would end an interruption, and
// Reflectors would log each one.
func emptyWatchAsError(watched watch.Interface, err error) (watch.Interface, error) {
	if err == nil && reflect.TypeOf(watched) == emptyWatchType {
		return nil, errNoResponse
	}
	return watched, err
}

// isInterruption reports whether a request failed for a lasting reason. An expired version (410) is not one: it makes
// clients list again, as intended.
func isInterruption(err error) bool {
	return err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
}

// isListNext reports whether a client lists after this response to its attempt to list by watching: the API server is
// too old for that, or does not have the resource.
func isListNext(options metav1.ListOptions, err error) bool {
	return options.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsNotFound(err))
}

// onNoResponse returns a function that records that a request got no response and will be retried.
func (i *interruptions) onNoResponse(ctx context.Context, resource string) func(error) {
	return func(err error) {
		if ctx.Err() != nil {
			return
		}
		i.begin(ctx, resource, err)
		i.log.Debug("request got no response; retrying", "resource", resource, "error", err)
	}
}

// begin starts an interruption after a failed request. Failures after the end of the context are ignored.
func (i *interruptions) begin(ctx context.Context, resource string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, isInterrupted := i.current[resource]; isInterrupted || ctx.Err() != nil {
		return
	}
	started := interruption{time.Now(), err}
	i.current[resource] = started
	i.onInterrupted(resource, started.since, err)
	i.log.Warn("watch interrupted; keeping the last known state", "resource", resource, "error", err)
}

// end ends the interruption, if there is one, and logs the message.
func (i *interruptions) end(resource, message string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	ended, isInterrupted := i.current[resource]
	if !isInterrupted {
		return
	}
	delete(i.current, resource)
	i.onResumed(resource)
	i.log.Info(message, "resource", resource, "after", time.Since(ended.since).Round(time.Millisecond))
}

// forget ends the interruption of a resource that is no longer watched.
func (i *interruptions) forget(resource string) { i.end(resource, "resource is no longer watched") }
