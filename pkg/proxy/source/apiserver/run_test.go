package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
)

// longestPause is longer than client-go's longest pause between two attempts.
const longestPause = 2 * time.Minute

// api serves a Watcher in a test with synctest time. e2e/apiserver uses a real API server.
type api struct {
	listWatches
	services chan watch.Event // events of the watch of Services
	// nodeLists counts the started lists of the other nodes. Each takes a while.
	nodeLists atomic.Int64
	// nodeWatches counts the open watches of other nodes.
	nodeWatches atomic.Int64
}

// tick is the interval in which a test checks conditions.
const tick = 100 * time.Millisecond

func newAPI(listDuration time.Duration, services ...corev1.Service) *api {
	version := metav1.ListMeta{ResourceVersion: "1"}
	always := func(list runtime.Object) *cache.ListWatch { return serve(func() runtime.Object { return list }) }
	a := &api{services: make(chan watch.Event)}
	a.byKind = emptyLists()
	a.byKind[convert.Services] = always(&corev1.ServiceList{ListMeta: version, Items: services})
	a.byKind[convert.ServiceCIDRs] = always(&networkingv1.ServiceCIDRList{ListMeta: version, Items: []networkingv1.ServiceCIDR{{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", ResourceVersion: "1"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
	}}})
	a.byKind[convert.Services].WatchFuncWithContext = func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
		if options.SendInitialEvents != nil {
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
		}
		return watch.NewProxyWatcher(a.services), nil
	}
	others := a.byKind[convert.OtherNodes]
	a.byKind[convert.OtherNodes] = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			a.nodeLists.Add(1)
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(listDuration):
				return others.ListWithContext(ctx, options)
			}
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watched, err := others.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			a.nodeWatches.Add(1)
			return stoppableWatch{watched, sync.OnceFunc(func() { a.nodeWatches.Add(-1) })}, nil
		},
	}
	return a
}

// stoppableWatch is a watch that calls a function when its client stops it.
type stoppableWatch struct {
	watch.Interface
	onStop func()
}

// Stop ends the watch.
func (s stoppableWatch) Stop() {
	s.Interface.Stop()
	s.onStop()
}

// watcher returns a Watcher of this API server.
func (a *api) watcher(options Options) *Watcher { return newWatcher(a.listWatches, options) }

// keyedService returns a version of a Service with topology keys.
func keyedService(name string, version int, keys string) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: "1", ResourceVersion: fmt.Sprint(version),
			Annotations: map[string]string{policy.TopologyKeysAnnotation: keys},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

// running is a running Watcher.
type running struct {
	cancel   context.CancelFunc
	returned chan error

	mu      sync.Mutex
	updates []convert.Update
	log     strings.Builder
}

// run creates a Watcher and runs it until end.
func run(t *testing.T, newWatcher func(Options) *Watcher) *running {
	t.Helper()
	r := &running{returned: make(chan error, 1)}
	c := newWatcher(Options{View: convert.View{Node: "self"}, Log: slog.New(slog.NewTextHandler(r, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.returned <- c.Run(ctx, r.deliver) }()
	return r
}

func (r *running) deliver(update convert.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates = append(r.updates, update)
}

// Write records a line of the log.
func (r *running) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(line)
}

// delivered returns the updates so far.
func (r *running) delivered() []convert.Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.updates)
}

// count returns the number of updates.
func (r *running) count() int { return len(r.delivered()) }

// hasDelivered reports whether an update so far had a Service.
func (r *running) hasDelivered(service string) bool {
	for _, update := range r.delivered() {
		if update.Change.Services[nameOf(service)] != nil {
			return true
		}
	}
	return false
}

// logged returns the number of log lines with a text.
func (r *running) logged(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.log.String(), text)
}

// end stops the Watcher, asserts that Run returns at once and that nothing is delivered afterwards, and lets
// client-go's goroutines end.
func (r *running) end(t *testing.T) {
	t.Helper()
	synctest.Wait()
	r.cancel()
	synctest.Wait()
	select {
	case err := <-r.returned:
		if err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	default:
		t.Error("Run has not returned although its context has ended")
	}
	r.mu.Lock()
	updates, log := len(r.updates), r.log.Len()
	r.mu.Unlock()
	time.Sleep(longestPause)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.updates) != updates || r.log.Len() != log {
		t.Errorf("got %d updates after the end, log:\n%s", len(r.updates)-updates, r.log.String())
	}
}

func TestConstantEditsDoNotBlockOtherServices(t *testing.T) {
	for name, takes := range map[string]time.Duration{
		"lists are fast": time.Millisecond, "lists are slow": 4 * time.Second, "no list completes": time.Hour,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { startDuringAttack(t, takes) }) })
	}
}

func startDuringAttack(t *testing.T, listDuration time.Duration) {
	api := newAPI(listDuration, keyedService("attacker", 1, "evil.example/1"))
	r := run(t, api.watcher)
	version := 2
	attack := func(duration time.Duration) {
		for end := time.Now().Add(duration); time.Now().Before(end); version++ {
			service := keyedService("attacker", version, fmt.Sprintf("evil.example/%d", version))
			if version%2 == 0 {
				service = keyedService("attacker", version, "*") // so that no Service needs the nodes any more
			}
			api.services <- watch.Event{Type: watch.Modified, Object: &service}
			time.Sleep(tick)
		}
		synctest.Wait()
	}
	attack(nodes.LabelTimeout + tick)
	if r.count() == 0 {
		t.Errorf("no first update after %v", nodes.LabelTimeout)
	}
	victim := keyedService("victim", version, rack)
	api.services <- watch.Event{Type: watch.Added, Object: &victim}
	attack(nodes.LabelTimeout + tick)
	if !r.hasDelivered("victim") {
		t.Errorf("the Service of another user is blocked for more than %v", nodes.LabelTimeout)
	}
	attack(2 * onDemandIdleTimeout)
	if got := api.nodeLists.Load(); got != 1 {
		t.Errorf("%d lists of nodes were started, want 1", got)
	}
	r.end(t)
}

// Other nodes must be listed at most once per idle timeout.
func TestOtherNodesAreWatchedWhileNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		r := run(t, api.watcher)
		version := 1
		edit := func(keys string, pause time.Duration) {
			version++
			service := keyedService("web", version, keys)
			api.services <- watch.Event{Type: watch.Modified, Object: &service}
			time.Sleep(pause)
			synctest.Wait()
		}
		expect := func(what string, lists, watches int64) {
			t.Helper()
			if got := api.nodeLists.Load(); got != lists {
				t.Errorf("%s: %d lists were started, want %d", what, got, lists)
			}
			if got := api.nodeWatches.Load(); got != watches {
				t.Errorf("%s: %d watches are open, want %d", what, got, watches)
			}
		}
		edit("*", time.Minute)
		expect("no Service needs them", 0, 0)
		edit(rack, time.Hour)
		expect("a Service needs them", 1, 1)
		edit("*", onDemandIdleTimeout-tick)
		expect("not needed for a moment", 1, 1)
		edit(row, time.Hour)
		expect("needed again", 1, 1)
		edit("*", onDemandIdleTimeout+tick)
		expect("no longer needed", 1, 0)
		edit(rack, tick)
		expect("needed again after that", 2, 1)
		edit("*", onDemandIdleTimeout+tick)
		expect("the idle timeout has doubled", 2, 1)
		for end := time.Now().Add(48 * time.Hour); time.Now().Before(end); { // a user who waits for the end of that time
			edit(rack, tick)
			for edit("*", tick); api.nodeWatches.Load() > 0; {
				time.Sleep(onDemandIdleTimeout)
				synctest.Wait()
			}
		}
		expect("a user names a key whenever the watch has ended, for two days", 14, 0)
		r.end(t)
	})
}

func TestRunReturnsAtOnceDuringAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 20 * time.Second, 5 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			unusedAddr := reserve.OnLoopback(t).String() // connections are refused
			synctest.Test(t, func(t *testing.T) {
				r := run(t, func(options Options) *Watcher {
					c, err := New(&rest.Config{Host: unusedAddr}, options)
					if err != nil {
						t.Fatal(err)
					}
					return c
				})
				time.Sleep(outage)
				want := 0
				for _, kind := range convert.Kinds {
					if !kind.IsOnDemand {
						want++
					}
				}
				for range nodes.DemotionKinds {
					want++
				}
				if got := r.logged("connection refused"); got != want {
					t.Errorf("%d interruptions were logged, want one for each of the %d resources", got, want)
				}
				r.end(t)
			})
		})
	}
}

func TestStartWithForbiddenServiceCIDRs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		granted := api.byKind[convert.ServiceCIDRs]
		var isGranted atomic.Bool
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "servicecidrs"}, "", nil)
		api.byKind[convert.ServiceCIDRs] = &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				if !isGranted.Load() {
					return nil, forbidden
				}
				return granted.ListWithContext(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if !isGranted.Load() {
					return nil, forbidden
				}
				return granted.WatchWithContext(ctx, options)
			},
		}
		r := run(t, api.watcher)
		time.Sleep(tick)
		synctest.Wait()
		if got := r.count(); got != 1 {
			t.Errorf("%d updates were delivered, want only the first", got)
		}
		isGranted.Store(true)
		time.Sleep(longestPause)
		synctest.Wait()
		if updates := r.delivered(); len(updates) != 2 || len(updates[1].Change.ServiceCIDRs) != 1 {
			t.Errorf("after listing was allowed: updates %v, want a second one with the range", updates)
		}
		for _, want := range []string{"listing ServiceCIDRs is forbidden", "watch interrupted", "watch resumed"} {
			if got := r.logged(want); got != 1 {
				t.Errorf("%q was logged %d times, want once", want, got)
			}
		}
		r.end(t)
	})
}

func TestStartWaitsForFailingServiceCIDRs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		failing := responses{list: apierrors.NewInternalError(context.DeadlineExceeded)}
		failing.watch = failing.list
		api.byKind[convert.ServiceCIDRs] = failing.listWatch()
		r := run(t, api.watcher)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := r.count(); got != 0 {
			t.Errorf("%d updates were delivered without the ServiceCIDRs", got)
		}
		r.end(t)
	})
}

func TestServiceIsDeliveredAfterListTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Hour)
		r := run(t, api.watcher)
		time.Sleep(time.Minute)
		first, second := keyedService("first", 2, rack), keyedService("second", 3, row)
		api.services <- watch.Event{Type: watch.Added, Object: &first}
		time.Sleep(nodes.LabelTimeout - tick)
		api.services <- watch.Event{Type: watch.Added, Object: &second}
		synctest.Wait()
		if r.hasDelivered("first") || r.hasDelivered("second") {
			t.Error("a Service was delivered before the list")
		}
		time.Sleep(2 * tick)
		synctest.Wait()
		if !r.hasDelivered("first") || !r.hasDelivered("second") {
			t.Error("a Service is still blocked")
		}
		if got := r.logged("timed out listing other nodes"); got != 1 {
			t.Errorf("the timeout was logged %d times, want once", got)
		}
		if got := api.nodeLists.Load(); got != 1 {
			t.Errorf("%d lists were started, want 1, which continues", got)
		}
		r.end(t)
	})
}

func TestAMissingResourceIsEmptyAndRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		existing := api.byKind[convert.ServiceCIDRs]
		missing := apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, "")
		var exists atomic.Bool
		var lists atomic.Int64
		watching := make(chan watch.Event)
		api.byKind[convert.ServiceCIDRs] = &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				if lists.Add(1); !exists.Load() {
					return nil, missing
				}
				return existing.ListWithContext(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if !exists.Load() {
					return nil, missing
				}
				if options.SendInitialEvents != nil {
					return existing.WatchWithContext(ctx, options)
				}
				return watch.NewProxyWatcher(watching), nil
			},
		}
		r := run(t, api.watcher)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := r.count(); got != 1 {
			t.Errorf("%d updates were delivered, want only the first", got)
		}
		if got, limit := lists.Load(), int64(time.Hour/missingResourceRetry)+1; got < limit/2 || got > limit {
			t.Errorf("%d lists in an hour, want %d to %d", got, limit/2, limit)
		}
		exists.Store(true)
		time.Sleep(2 * missingResourceRetry)
		synctest.Wait()
		if updates := r.delivered(); len(updates) != 2 || len(updates[1].Change.ServiceCIDRs) != 1 {
			t.Errorf("after it appeared: updates %v, want a second one with the range", updates)
		}
		if got := r.logged("watch interrupted"); got != 0 {
			t.Errorf("%d interruptions were logged, want none: a missing resource is not one", got)
		}
		// Another API server responds, which does not have the resource.
		exists.Store(false)
		close(watching)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.count(); got != 2 {
			t.Errorf("%d updates were delivered, want 2: the range stays active", got)
		}
		for text, want := range map[string]int{"has no ServiceCIDRs": 1, "watch interrupted": 1} {
			if got := r.logged(text); got != want {
				t.Errorf("%q was logged %d times, want %d", text, got, want)
			}
		}
		r.end(t)
	})
}

func TestFirstUpdateTimeoutStartsWithNodeList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sliceDelay, nodeDelay = time.Minute, 3 * time.Second
		api := newAPI(nodeDelay, keyedService("web", 1, rack))
		list := api.byKind[convert.EndpointSlices].ListWithContextFunc
		api.byKind[convert.EndpointSlices].ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			time.Sleep(sliceDelay)
			return list(ctx, options)
		}
		r := run(t, api.watcher)
		time.Sleep(sliceDelay + nodeDelay/2)
		synctest.Wait()
		if got := r.count(); got != 0 {
			t.Errorf("%d updates were delivered before the nodes were listed", got)
		}
		time.Sleep(nodeDelay)
		synctest.Wait()
		if !r.hasDelivered("web") {
			t.Error("the Service was not delivered with the nodes")
		}
		r.end(t)
	})
}
