package cluster

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

// outage is a time in which the API server sends no changes of a resource.
type outage struct {
	since time.Time // when the first request failed, or the last watch ended
	err   error     // why that one failed
}

// A watch that ends is no outage if another one follows within unnoticed: clients watch anew at once when a watch ends
// in order, and after 0.8 to 1.6 s when it did not. After many refusals, or watches that break as soon as they begin,
// they wait up to a minute, and no request fails in that time (client-go v0.37, tools/cache/reflector.go). A request
// without an answer never makes them wait that long: see untilAnswered.
//
// A watch that begins ends an outage only if it lasts: one that goes on from a version that is not known any more is
// answered, and its first event says so (410). Clients then list anew, after the same pause.
//
// Looking at failed requests only would save some 100 lines, and report a refused connection just as soon. But if
// something answers each watch and breaks it, no request ever fails. Measured with a Reflector: such an outage is
// reported after 3.4 s instead of never; a missing bookmark would show it only after a minute.
const (
	unnoticed = 2 * time.Second
	lasting   = time.Second
)

// errWatchEnded is the reason for an outage while clients wait before they watch again.
var errWatchEnded = errors.New("the watch ended, and no other has begun since")

// outages are the present outages. Each is logged when it begins and when it ends, however often clients try again
// meanwhile. Only one client at a time asks for a resource.
type outages struct {
	log         *slog.Logger
	interrupted func(resource string, since time.Time, err error)
	resumed     func(resource string)

	mu      sync.Mutex
	now     map[string]outage      // by resource
	pending map[string]*time.Timer // by resource whose watch began or ended just now: what follows if nothing happens
}

func newOutages(options Options) *outages {
	o := &outages{log: options.Log, interrupted: options.Interrupted, resumed: options.Resumed}
	o.now, o.pending = map[string]outage{}, map[string]*time.Timer{}
	if o.interrupted == nil {
		o.interrupted = func(string, time.Time, error) {}
	}
	if o.resumed == nil {
		o.resumed = func(string) {}
	}
	return o
}

// observe returns a ListWatch that repeats requests until they are answered, and notes how they end. An outage begins
// with a request that fails, or when no watch follows one that ended; and it ends with a watch that lasts: a list
// alone brings no changes. An error that isExpected is no outage.
func (o *outages) observe(resource string, listWatch *cache.ListWatch, isExpected func(error) bool) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := untilAnswered(ctx, o.noteUnanswered(ctx, resource), func() (runtime.Object, error) {
				return listWatch.ListWithContext(ctx, options)
			})
			if isOutage(err) && !isExpected(err) {
				o.begin(ctx, resource, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watched, err := untilAnswered(ctx, o.noteUnanswered(ctx, resource), func() (watch.Interface, error) {
				return answered(listWatch.WatchWithContext(ctx, options))
			})
			switch {
			case err == nil:
				o.watchBegan(ctx, resource)
				watched = observed{watched, func() { o.watchEnded(ctx, resource) }}
			case isOutage(err) && !isExpected(err) && !isListNext(options, err):
				o.begin(ctx, resource, err)
			}
			return watched, err
		},
	}
}

// observed is a watch that calls stopped when its client stops it. Reflectors stop each watch, also one that ended
// by itself.
type observed struct {
	watch.Interface
	stopped func()
}

// Stop ends the watch.
func (w observed) Stop() {
	w.Interface.Stop()
	w.stopped()
}

// errNoAnswer is the error of a watch whose connection broke or timed out before the API server answered.
var errNoAnswer = errors.New("the connection ended before an answer came")

// unanswered is the type of the watch that rest.Request.Watch returns in that case instead of an error.
var unanswered = reflect.TypeOf(watch.NewEmptyWatch())

// answered turns such a watch into the error that it is. Taken for a watch it would end an outage, and reflectors would
// log each one.
func answered(watched watch.Interface, err error) (watch.Interface, error) {
	if err == nil && reflect.TypeOf(watched) == unanswered {
		return nil, errNoAnswer
	}
	return watched, err
}

// isOutage reports whether a request failed for a lasting reason. An expired version (410) is none: it makes clients
// list anew, as intended.
func isOutage(err error) bool {
	return err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
}

// isListNext reports whether a client lists after this answer to its attempt to list by watching: the API server is
// too old for that, or has no such resource.
func isListNext(options metav1.ListOptions, err error) bool {
	return options.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsNotFound(err))
}

// noteUnanswered returns a function that notes that a request got no answer and is made again.
func (o *outages) noteUnanswered(ctx context.Context, resource string) func(error) {
	return func(err error) {
		if ctx.Err() != nil {
			return
		}
		o.begin(ctx, resource, err)
		o.log.Debug("a request was not answered; trying again", "resource", resource, "error", err)
	}
}

// begin notes that a request failed. After its context has ended failures do not matter.
func (o *outages) begin(ctx context.Context, resource string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() == nil {
		o.beginSince(resource, time.Now(), err)
	}
}

// beginSince begins an outage. The caller holds mu.
func (o *outages) beginSince(resource string, since time.Time, err error) {
	o.settle(resource)
	if o.isOut(resource) {
		return
	}
	o.now[resource] = outage{since, err}
	o.interrupted(resource, since, err)
	o.log.Warn("watch interrupted; keeping the last known state", "resource", resource, "error", err)
}

// watchBegan ends the interruption, if there is one, unless something happens to the watch at once.
func (o *outages) watchBegan(ctx context.Context, resource string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	o.settle(resource)
	if o.isOut(resource) {
		o.schedule(resource, lasting, func() { o.end(resource, "watch resumed") })
	}
}

// watchEnded begins an interruption, unless there is one or something else happens soon.
func (o *outages) watchEnded(ctx context.Context, resource string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	o.settle(resource)
	if o.isOut(resource) {
		return
	}
	since := time.Now()
	o.schedule(resource, unnoticed, func() {
		if ctx.Err() == nil {
			o.beginSince(resource, since, errWatchEnded)
		}
	})
}

// schedule calls then after a while, unless something happens to the resource before. The caller holds mu, and so does
// then.
func (o *outages) schedule(resource string, after time.Duration, then func()) {
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.pending[resource] == timer { // otherwise it was too late to stop it
			delete(o.pending, resource)
			then()
		}
	})
	o.pending[resource] = timer
}

// settle cancels what is scheduled for a resource. The caller holds mu.
func (o *outages) settle(resource string) {
	if timer := o.pending[resource]; timer != nil {
		timer.Stop()
		delete(o.pending, resource)
	}
}

// settleAll cancels what is scheduled for any resource. If the contexts of all requests have ended, nothing is reported
// after it.
func (o *outages) settleAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for resource := range o.pending {
		o.settle(resource)
	}
}

// isOut reports whether there is an outage. The caller holds mu.
func (o *outages) isOut(resource string) bool { _, isOut := o.now[resource]; return isOut }

// end ends an outage, and the log says why. The caller holds mu.
func (o *outages) end(resource, why string) {
	outage := o.now[resource]
	delete(o.now, resource)
	o.resumed(resource)
	o.log.Info(why, "resource", resource, "after", time.Since(outage.since).Round(time.Millisecond))
}

// forget ends the outage of a resource that is no longer followed. The context of its requests has ended.
func (o *outages) forget(resource string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settle(resource)
	if o.isOut(resource) {
		o.end(resource, "a resource is no longer followed")
	}
}
