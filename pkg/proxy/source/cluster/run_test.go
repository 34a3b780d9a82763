package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
)

// longestPause is more than client-go lets pass between two attempts.
const longestPause = 2 * time.Minute

// api answers a Cluster in a test, whose time is that of synctest. e2e/apiserver asks a real API server.
type api struct {
	resources
	services chan watch.Event // what the watch of Services tells
	// nodeLists counts the lists of the other nodes that were begun; each takes a while.
	nodeLists atomic.Int64
}

func newAPI(takes time.Duration, services ...corev1.Service) *api {
	version := metav1.ListMeta{ResourceVersion: "1"}
	always := func(list runtime.Object) *cache.ListWatch { return serve(func() runtime.Object { return list }) }
	a := &api{services: make(chan watch.Event)}
	a.resources = resources{
		services: always(&corev1.ServiceList{ListMeta: version, Items: services}),
		slices:   always(&discoveryv1.EndpointSliceList{ListMeta: version}),
		serviceCIDRs: always(&networkingv1.ServiceCIDRList{ListMeta: version, Items: []networkingv1.ServiceCIDR{{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", ResourceVersion: "1"},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
		}}}),
		ownNode: always(&corev1.NodeList{ListMeta: version}),
	}
	a.resources.services.WatchFuncWithContext = func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
		if options.SendInitialEvents != nil {
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
		}
		return watch.NewProxyWatcher(a.services), nil
	}
	nodes := always(&metav1.PartialObjectMetadataList{ListMeta: version})
	a.otherNodes = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			a.nodeLists.Add(1)
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(takes):
				return nodes.ListWithContext(ctx, options)
			}
		},
		WatchFuncWithContext: nodes.WatchFuncWithContext,
	}
	return a
}

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

// running is a Cluster that runs.
type running struct {
	cancel   context.CancelFunc
	returned chan error

	mu      sync.Mutex
	updates []convert.Update
	log     strings.Builder
}

// run makes a Cluster and runs it until end.
func run(t *testing.T, newCluster func(Options) (*Cluster, error)) *running {
	t.Helper()
	r := &running{returned: make(chan error, 1)}
	c, err := newCluster(Options{Node: "self", Log: slog.New(slog.NewTextHandler(r, nil))})
	if err != nil {
		t.Fatal(err)
	}
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

// Write takes in a line of the log.
func (r *running) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(line)
}

// delivered returns the updates that came.
func (r *running) delivered() []convert.Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.updates)
}

// count returns how many came.
func (r *running) count() int { return len(r.delivered()) }

// delivers reports whether an update so far told of a Service.
func (r *running) delivers(service string) bool {
	for _, update := range r.delivered() {
		if update.Change.Services[nameOf(service)] != nil {
			return true
		}
	}
	return false
}

// logged counts the lines with a text.
func (r *running) logged(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.log.String(), text)
}

// end ends the Cluster, wants that Run returns before any time has passed and that nothing comes behind it, and lets client-go's
// goroutines end.
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
		t.Error("Run has not returned though its context has ended")
	}
	r.mu.Lock()
	updates, log := len(r.updates), r.log.Len()
	r.mu.Unlock()
	time.Sleep(longestPause)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.updates) != updates || r.log.Len() != log {
		t.Errorf("%d updates came behind the end, and the log is:\n%s", len(r.updates)-updates, r.log.String())
	}
}

func TestAServiceThatIsEditedAllTheTimeKeepsNoProxyFromItsFirstUpdate(t *testing.T) {
	for name, takes := range map[string]time.Duration{
		"lists are quick": time.Millisecond, "lists take long": 4 * time.Second, "no list comes": time.Hour,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { startDuringAttack(t, takes) }) })
	}
}

func startDuringAttack(t *testing.T, takes time.Duration) {
	api := newAPI(takes, keyedService("attacker", 1, "evil.example/1"))
	r := run(t, func(options Options) (*Cluster, error) { return newCluster(api.resources, options) })
	version := 2
	attack := func(duration time.Duration) {
		for end := time.Now().Add(duration); time.Now().Before(end); version++ {
			service := keyedService("attacker", version, fmt.Sprintf("evil.example/%d", version))
			api.services <- watch.Event{Type: watch.Modified, Object: &service}
			time.Sleep(tick)
		}
		synctest.Wait()
	}
	attack(nodeListPatience + tick)
	if r.count() == 0 {
		t.Errorf("after %v there is no first update", nodeListPatience)
	}
	victim := keyedService("victim", version, rack)
	api.services <- watch.Event{Type: watch.Added, Object: &victim}
	attack(nodeListPatience + tick)
	if !r.delivers("victim") {
		t.Errorf("the Service of somebody else waits for more than %v", nodeListPatience)
	}
	attack(time.Minute)
	most := int64((2*nodeListPatience+time.Minute)/nodeListInterval) + 1
	if got := api.nodeLists.Load(); got == 0 || got > most {
		t.Errorf("%d lists of nodes were begun, want at most %d and some", got, most)
	}
	r.end(t)
}

func TestRunReturnsAtOnceDuringAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 20 * time.Second, 5 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if err := listener.Close(); err != nil { // so that connections are refused
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				r := run(t, func(options Options) (*Cluster, error) {
					return New(&rest.Config{Host: listener.Addr().String()}, options)
				})
				time.Sleep(outage)
				if got := r.logged("connection refused"); got != 4 {
					t.Errorf("%d outages were logged, want those of the four resources", got)
				}
				r.end(t)
			})
		})
	}
}

func TestServiceCIDRsThatAreForbiddenKeepNobodyFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		granted := api.serviceCIDRs
		var isGranted atomic.Bool
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "servicecidrs"}, "", nil)
		api.serviceCIDRs = &cache.ListWatch{
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
		r := run(t, func(options Options) (*Cluster, error) { return newCluster(api.resources, options) })
		time.Sleep(serviceCIDRPatience - tick)
		synctest.Wait()
		if got := r.count(); got != 0 {
			t.Errorf("%d updates were delivered before the patience was over", got)
		}
		time.Sleep(2 * tick)
		synctest.Wait()
		if got := r.count(); got != 1 {
			t.Errorf("%d updates were delivered, want the first", got)
		}
		isGranted.Store(true)
		time.Sleep(longestPause)
		synctest.Wait()
		if updates := r.delivered(); len(updates) != 2 || len(updates[1].Change.ServiceCIDRs) != 1 {
			t.Errorf("when they may be listed, the updates are %v, want a second one with the range", updates)
		}
		for _, want := range []string{"starting without them", "does not tell about a resource", "tells about a resource again"} {
			if got := r.logged(want); got != 1 {
				t.Errorf("%q was logged %d times, want once", want, got)
			}
		}
		r.end(t)
	})
}

func TestServiceCIDRsThatDoNotComeForAnotherReasonAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		trouble := answers{list: apierrors.NewInternalError(context.DeadlineExceeded)}
		trouble.watch = trouble.list
		api.serviceCIDRs = trouble.listWatch()
		r := run(t, func(options Options) (*Cluster, error) { return newCluster(api.resources, options) })
		time.Sleep(10 * serviceCIDRPatience)
		synctest.Wait()
		if got := r.count(); got != 0 {
			t.Errorf("%d updates were delivered without the ranges", got)
		}
		r.end(t)
	})
}

func TestAServiceIsServedAfterItsPatienceWhileAListForOthersDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Hour, keyedService("first", 1, rack))
		r := run(t, func(options Options) (*Cluster, error) { return newCluster(api.resources, options) })
		time.Sleep(2 * nodeListPatience)
		second := keyedService("second", 2, row)
		api.services <- watch.Event{Type: watch.Added, Object: &second}
		time.Sleep(nodeListPatience / 2)
		synctest.Wait()
		if !r.delivers("first") || r.delivers("second") {
			t.Error("the first Service waits, or the second does not")
		}
		time.Sleep(nodeListPatience / 2)
		synctest.Wait()
		if !r.delivers("second") {
			t.Error("the second Service still waits")
		}
		if got := api.nodeLists.Load(); got != 1 {
			t.Errorf("%d lists were begun, want one: it goes on", got)
		}
		r.end(t)
	})
}

func TestPatienceOfTheFirstUpdateBeginsWhenNodesCanBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others, nodes = time.Minute, 3 * time.Second
		api := newAPI(nodes, keyedService("web", 1, rack))
		list := api.slices.ListWithContextFunc
		api.slices.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			time.Sleep(others)
			return list(ctx, options)
		}
		r := run(t, func(options Options) (*Cluster, error) { return newCluster(api.resources, options) })
		time.Sleep(others + nodes/2)
		synctest.Wait()
		if got := r.count(); got != 0 {
			t.Errorf("%d updates were delivered before the nodes were listed", got)
		}
		time.Sleep(nodes)
		synctest.Wait()
		if !r.delivers("web") {
			t.Error("the Service was not delivered with the nodes")
		}
		r.end(t)
	})
}
