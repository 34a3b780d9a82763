package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// absence says who is called each time a resource is found missing, and each time asking for it is forbidden.
type absence struct{ missing, forbidden func() }

// orNone returns a ListWatch for a resource that the cluster may not have: then there are no objects, and nothing happens to them
// until the watch's time is up (5 to 10 minutes). After that it is asked again: the API server may have been upgraded.
//
// Once the resource was there, an answer that it is missing is an error like any other. One API server of several may be an older one
// that does not have it, and what the others have told stays in force.
func orNone(listWatch *cache.ListWatch, none func() runtime.Object, tell absence) *cache.ListWatch {
	var wasThere atomic.Bool
	note := func(err error) {
		if err == nil {
			wasThere.Store(true)
		}
		if apierrors.IsForbidden(err) {
			tell.forbidden()
		}
	}
	isMissing := func(err error) bool { return apierrors.IsNotFound(err) && !wasThere.Load() }
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := listWatch.ListWithContext(ctx, options)
			note(err)
			if isMissing(err) {
				tell.missing()
				return none(), nil
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watched, err := answered(listWatch.WatchWithContext(ctx, options))
			note(err)
			// A watch that is to begin with a list fails, so that the client lists.
			if isMissing(err) && options.SendInitialEvents == nil && options.TimeoutSeconds != nil {
				return newSilence(time.Duration(*options.TimeoutSeconds) * time.Second), nil
			}
			return watched, err
		},
	}
}

// silence is a watch that tells nothing and ends when its time is up.
type silence struct {
	events chan watch.Event
	stop   func()
}

func newSilence(duration time.Duration) *silence {
	s := &silence{events: make(chan watch.Event)}
	end := sync.OnceFunc(func() { close(s.events) })
	timer := time.AfterFunc(duration, end)
	s.stop = func() { timer.Stop(); end() }
	return s
}

// Stop ends the watch.
func (s *silence) Stop() { s.stop() }

// ResultChan returns the channel on which nothing comes.
func (s *silence) ResultChan() <-chan watch.Event { return s.events }
