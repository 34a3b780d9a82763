package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// demandAPI is an API server with a publisher of measured demand, or without one.
type demandAPI struct {
	*api
	leaseReads, lists, watches atomic.Int64

	mutex        sync.Mutex
	renewed      time.Time
	isAlive      bool   // the Lease is renewed every 20 s
	leaseErr     error  // the error of reads of the Lease; errAway: no response
	failuresLeft int    // how many more reads fail with leaseErr; zero means all
	listErr      error  // the error of lists of ServiceDemands
	backlog      string // the annotation of the Lease
	objects      []v1alpha1.ServiceDemand
	events       chan watch.Event
	notifiedAt   []time.Time
}

func newDemandAPI(t *testing.T, services ...corev1.Service) *demandAPI {
	t.Helper()
	m := &demandAPI{api: newAPI(time.Millisecond, services...), events: make(chan watch.Event), renewed: time.Now()}
	config, httpClient := &rest.Config{Host: "api"}, &http.Client{Transport: m}
	leases, err := newClient(config, httpClient, coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	m.leases = leases
	m.byKind[convert.ServiceDemands] = &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			m.lists.Add(1)
			m.mutex.Lock()
			defer m.mutex.Unlock()
			return &v1alpha1.ServiceDemandList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: slices.Clone(m.objects)}, m.listErr
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
			}
			m.watches.Add(1)
			return watch.NewProxyWatcher(m.events), nil
		},
	}
	return m
}

// RoundTrip responds to reads of the Lease.
func (m *demandAPI) RoundTrip(request *http.Request) (*http.Response, error) {
	m.leaseReads.Add(1)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.isAlive {
		m.renewed = time.Now().Truncate(20 * time.Second)
	}
	if m.failuresLeft > 0 {
		defer func() {
			if m.failuresLeft--; m.failuresLeft == 0 {
				m.leaseErr = nil
			}
		}()
	}
	if errors.Is(m.leaseErr, errAway) || request.URL.Path != "/apis/coordination.k8s.io/v1/namespaces/publishers/leases/vicinity-demand" {
		return nil, fmt.Errorf("%w, or unexpected request for %s", errAway, request.URL)
	}
	response, code := any(coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.DemandBacklogAnnotation: m.backlog}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(m.renewed))},
	}), http.StatusOK
	if status, isStatus := errors.AsType[*apierrors.StatusError](m.leaseErr); isStatus {
		failed := status.Status()
		failed.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		response, code = failed, int(failed.Code)
	}
	text, err := json.Marshal(response)
	return &http.Response{
		StatusCode: code, Body: io.NopCloser(bytes.NewReader(text)), Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
	}, err
}

// set changes the server's state.
func (m *demandAPI) set(change func()) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	change()
}

func (m *demandAPI) watcher(options Options) *Watcher {
	options.TopologyNamespace = "publishers"
	options.OnDemandRenewed = func(at time.Time) { m.set(func() { m.notifiedAt = append(m.notifiedAt, at) }) }
	return newWatcher(m.listWatches, options)
}

// measuredService returns a version of the Service "web" that is or is not planned with measured demand.
func measuredService(version int, isMeasured bool) corev1.Service {
	service := keyedService("web", version, "topology.kubernetes.io/zone, *")
	service.Annotations[policy.MaxLoadAnnotation] = "120%"
	if isMeasured {
		service.Annotations[policy.DemandSourceAnnotation] = "measured"
	}
	return service
}

// demandOf returns the measured demand of a Service.
func demandOf(name string, rate int64) v1alpha1.ServiceDemand {
	return v1alpha1.ServiceDemand{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: fmt.Sprint(rate)},
		Zones:      []v1alpha1.ZoneDemand{{Zone: "zone-a", DemandPPM: v1alpha1.PPM}}, ConnectionsPerMinute: rate,
		ObservedAt: metav1.Unix(1_800_000_000, 0),
	}
}

// demandScenario is a Watcher under test, with its own clock.
type demandScenario struct {
	t *testing.T
	*demandAPI
	*running
	version, seen int
}

// runScenario runs a scenario in synctest time.
func runScenario(t *testing.T, services []corev1.Service, do func(*demandScenario)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &demandScenario{t: t, demandAPI: newDemandAPI(t, services...), version: 10}
		s.objects = []v1alpha1.ServiceDemand{demandOf("web", 1)}
		do(s)
		s.end(t)
	})
}

func (s *demandScenario) start() { s.running = run(s.t, s.watcher) }

// edit switches measured demand of the Service "web" on or off.
func (s *demandScenario) edit(isMeasured bool) {
	s.version++
	service := measuredService(s.version, isMeasured)
	s.services <- watch.Event{Type: watch.Modified, Object: &service}
}

// expect advances the clock, and asserts the updates since its last call.
func (s *demandScenario) expect(when string, pause time.Duration, want string) {
	s.t.Helper()
	time.Sleep(pause)
	synctest.Wait()
	var words []string
	for _, update := range s.delivered()[s.seen:] {
		words, s.seen = append(words, strings.Fields(updateText(update))...), s.seen+1
	}
	words = slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "range/") })
	slices.Sort(words)
	if got := strings.Join(words, " "); got != want {
		s.t.Errorf("%s: delivered %q, want %q", when, got, want)
	}
}

// expectRequests asserts the number of lists and watches of ServiceDemands, and of reads of the Lease.
func (s *demandScenario) expectRequests(when string, lists, watches, atLeast, atMost int64) {
	s.t.Helper()
	if s.lists.Load() != lists || s.watches.Load() != watches {
		s.t.Errorf("%s: %d lists and %d watches, want %d and %d", when, s.lists.Load(), s.watches.Load(), lists, watches)
	}
	if got := s.leaseReads.Swap(0); got < atLeast || got > atMost {
		s.t.Errorf("%s: the Lease was read %d times, want %d to %d", when, got, atLeast, atMost)
	}
}

// There must be no request before a Service needs measured demand, and none some time after. In between there is a
// list, a watch, and a read of a small object two to four times a minute.
func TestMeasuredDemandIsWatchedWhileNeeded(t *testing.T) {
	runScenario(t, nil, func(s *demandScenario) {
		s.start()
		s.edit(false)
		s.expect("no Service needs it", time.Hour, "service/web:80")
		s.expectRequests("no Service needs it", 0, 0, 0, 0)
		s.set(func() { s.isAlive = true })
		s.edit(true)
		s.expect("a Service needs it", tick, "counts demand/web:1 service/web:80")
		s.expect("for an hour", time.Hour, "")
		s.expectRequests("for an hour", 1, 1, 120, 242)
		changed, more := demandOf("web", 2), demandOf("db", 3)
		s.events <- watch.Event{Type: watch.Modified, Object: &changed}
		s.events <- watch.Event{Type: watch.Added, Object: &more}
		s.expect("objects are changed and added", tick, "demand/db:3 demand/web:2")
		s.events <- watch.Event{Type: watch.Deleted, Object: &more}
		s.expect("an object is deleted", tick, "-demand/db")
		wrong := demandOf("web", 4)
		wrong.Zones[0].DemandPPM++
		s.events <- watch.Event{Type: watch.Modified, Object: &wrong}
		s.expect("an invalid version", tick, "")
		if rejections := s.delivered()[s.seen-1].NewProblems; len(rejections) != 1 || rejections[0].Kind != "ServiceDemand" {
			t.Errorf("rejections %v, want one of a ServiceDemand", rejections)
		}
		s.edit(false)
		s.expect("not needed for a moment", onDemandIdleTimeout/2, "service/web:80")
		s.edit(true)
		s.expect("needed again", onDemandIdleTimeout, "service/web:80")
		s.edit(false)
		s.expect("not needed for long", 2*onDemandIdleTimeout, "-demand/web service/web:80 unknown")
		s.leaseReads.Store(0)
		s.expect("not needed for an hour", time.Hour, "")
		s.expectRequests("not needed for an hour", 1, 1, 0, 0)
		if last := s.notifiedAt[len(s.notifiedAt)-1]; !last.IsZero() {
			t.Errorf("last renewal is %v, want zero", last)
		}
	})
}

// The first update must wait for the measured demand.
func TestFirstUpdateHasMeasuredDemand(t *testing.T) {
	runScenario(t, []corev1.Service{measuredService(1, true)}, func(s *demandScenario) {
		s.leaseErr = errAway
		s.start()
		s.expect("the API server does not respond", nodes.LabelTimeout-3*time.Second, "")
		s.set(func() { s.leaseErr = nil })
		s.expect("the API server responds", 2*leaseRetryInterval, "counts demand/web:1 service/web:80")
		if s.count() != 1 {
			t.Errorf("got %d updates, want 1", s.count())
		}
		s.expectRequests("a start", 1, 1, 4, 6)
	})
}

// The wait for measured demand must end.
func TestFirstUpdateTimesOutWaitingForDemand(t *testing.T) {
	runScenario(t, []corev1.Service{measuredService(1, true)}, func(s *demandScenario) {
		s.leaseErr = errAway
		s.start()
		s.expect("the Service is blocked", nodes.LabelTimeout-tick, "")
		s.expect("the wait has timed out", 2*tick, "service/web:80")
		s.set(func() { s.leaseErr = nil })
		s.expect("the API server responds", 2*leaseRetryInterval, "counts demand/web:1")
		if got := s.logged("timed out reading measured demand"); got != 1 {
			t.Errorf("the timeout was logged %d times, want once", got)
		}
	})
}

// Measured demand expires when its publisher stops, and counts again when a publisher starts.
func TestMeasuredDemandExpires(t *testing.T) {
	runScenario(t, []corev1.Service{measuredService(1, true)}, func(s *demandScenario) {
		s.start()
		s.expect("demand is published", v1alpha1.DemandFreshFor-time.Second, "counts demand/web:1 service/web:80")
		s.expect("not published for an hour", 2*leaseInterval+time.Second, "stale")
		s.expect("not published for a day", 24*time.Hour, "")
		s.set(func() { s.renewed = time.Now() })
		s.expect("published again", 2*leaseInterval, "counts")
		for text, want := range map[string]int{"is too old": 1, "planning with measured demand": 2} {
			if got := s.logged(text); got != want {
				t.Errorf("%q was logged %d times, want %d", text, got, want)
			}
		}
		s.expectRequests("a day", 1, 1, 25*120, 25*242)
	})
}

// Measured demand must also stay when the API server is back before the publisher is.
func TestMeasuredDemandStaysDuringAnOutage(t *testing.T) {
	runScenario(t, []corev1.Service{measuredService(1, true)}, func(s *demandScenario) {
		s.start()
		s.expect("a start", time.Minute, "counts demand/web:1 service/web:80")
		for _, outage := range []error{errAway, apierrors.NewInternalError(errAway), apierrors.NewUnauthorized("unknown token")} {
			s.set(func() { s.leaseErr = outage })
			s.expect("the API server is unavailable", 24*time.Hour, "")
			s.set(func() { s.leaseErr = nil })
			s.expect("the API server is back", 5*time.Minute, "")
			s.set(func() { s.renewed = time.Now() })
			s.expect("the publisher is back", time.Minute, "")
		}
		if got := s.logged("level=WARN"); got != 0 {
			t.Errorf("%d warnings were logged: %s", got, s.log.String())
		}
	})
}

// The only warning must name the remedy.
func TestOnlyTheLeaseIsReadWithoutAPublisher(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, err := range map[string]error{
		"there is no Lease":         apierrors.NewNotFound(leases, v1alpha1.DemandLeaseName),
		"reading is forbidden":      apierrors.NewForbidden(leases, v1alpha1.DemandLeaseName, nil),
		"it was never renewed":      nil,
		"it is missing for a while": nil,
	} {
		t.Run(name, func(t *testing.T) {
			runScenario(t, []corev1.Service{measuredService(1, true)}, func(s *demandScenario) {
				switch name {
				case "it is missing for a while":
					s.start()
					s.expect("it is there", tick, "counts demand/web:1 service/web:80")
					missing := apierrors.NewNotFound(leases, v1alpha1.DemandLeaseName)
					s.set(func() { s.leaseErr, s.failuresLeft = apierrors.NewForbidden(leases, v1alpha1.DemandLeaseName, nil), 1 })
					s.expect("one read is forbidden", 2*leaseInterval, "")
					s.set(func() { s.leaseErr, s.failuresLeft = missing, 1000 })
					s.expect("it is missing", 4*leaseInterval, "unpublished")
					s.set(func() { s.leaseErr = nil })
					s.expect("it is back", 2*leaseInterval, "counts")
					s.expectRequests("in all", 1, 1, 5, 12)
				default:
					if s.leaseErr = err; err == nil {
						s.renewed = time.Time{}
					}
					s.start()
					s.expect(name, tick, "service/web:80 unpublished")
					s.expect("for an hour", time.Hour, "")
					s.expectRequests("for an hour", 0, 0, 120, 242)
					s.set(func() { s.leaseErr, s.renewed = nil, time.Now() })
					s.expect("demand is published", 2*leaseInterval, "counts demand/web:1")
				}
				if got := s.logged("component demand"); got != 1 {
					t.Errorf("the remedy was logged %d times, want once: %s", got, s.log.String())
				}
			})
		})
	}
}

// There is a Lease, but the kind or the permission is missing.
func TestUnlistableServiceDemandsBlockNothing(t *testing.T) {
	demands := schema.GroupResource{Group: v1alpha1.SchemeGroupVersion.Group, Resource: v1alpha1.ServiceDemandResource}
	for name, err := range map[string]error{
		"the kind does not exist": apierrors.NewNotFound(demands, ""), "listing is forbidden": apierrors.NewForbidden(demands, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			runScenario(t, []corev1.Service{measuredService(1, true)}, func(s *demandScenario) {
				s.listErr = err
				s.isAlive = true
				s.start()
				s.expect(name, time.Second, "service/web:80 unpublished")
				s.expect("for an hour", time.Hour, "")
				s.set(func() { s.listErr = nil })
				s.expect("listing succeeds", 2*missingResourceRetry, "counts demand/web:1")
				if got := s.logged("component demand"); got != 1 {
					t.Errorf("the remedy was logged %d times, want once: %s", got, s.log.String())
				}
			})
		})
	}
}

// Load must read measured demand as Run does, if a Service needs it, and report unreadable objects.
func TestLoadReadsMeasuredDemand(t *testing.T) {
	demands := schema.GroupResource{Group: v1alpha1.SchemeGroupVersion.Group, Resource: v1alpha1.ServiceDemandResource}
	missing, forbidden := apierrors.NewNotFound(demands, ""), apierrors.NewForbidden(demands, "", nil)
	anHourAgo := time.Now().Add(-time.Hour)
	for name, test := range map[string]struct {
		prepare    func(*demandAPI)
		isAsAlways bool
		want       string
		lists      int64
		err        string
	}{
		"no Service needs it":            {func(*demandAPI) {}, true, "service/web:80", 0, ""},
		"the Lease is fresh":             {func(*demandAPI) {}, false, "counts demand/web:1 service/web:80", 1, ""},
		"the Lease is stale":             {func(m *demandAPI) { m.renewed = anHourAgo }, false, "demand/web:1 service/web:80 stale", 1, ""},
		"there is no Lease":              {func(m *demandAPI) { m.leaseErr = missing }, false, "service/web:80 unpublished", 0, ""},
		"reading the Lease is forbidden": {func(m *demandAPI) { m.leaseErr = forbidden }, false, "counts demand/web:1 service/web:80", 1, ""},
		"the kind does not exist":        {func(m *demandAPI) { m.listErr = missing }, false, "service/web:80 unpublished", 1, ""},
		"listing is forbidden":           {func(m *demandAPI) { m.listErr = forbidden }, false, "service/web:80 unpublished", 1, ""},
		"the API server is unavailable":  {func(m *demandAPI) { m.leaseErr = errAway }, false, "", 0, "read Lease publishers/vicinity-demand"},
		"the list fails":                 {func(m *demandAPI) { m.listErr = errAway }, false, "", 1, "list servicedemands"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newDemandAPI(t, measuredService(1, !test.isAsAlways))
			m.objects = []v1alpha1.ServiceDemand{demandOf("web", 1)}
			test.prepare(m)
			w := m.watcher(Options{View: convert.View{Node: "self"}, Log: slog.New(slog.DiscardHandler)})
			update, err := w.Load(t.Context(), LocalNode)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("Load() = %v, want %q", err, test.err)
				}
				return
			}
			words := slices.DeleteFunc(strings.Fields(updateText(update)), func(word string) bool { return strings.HasPrefix(word, "range/") })
			if got := strings.Join(words, " "); err != nil || got != test.want || m.lists.Load() != test.lists {
				t.Errorf("Load() = %q, %v after %d lists, want %q after %d", got, err, m.lists.Load(), test.want, test.lists)
			}
		})
	}
}

// Load must read which measurements wait for the publisher, and ignore what it cannot parse.
func TestLoadReadsDemandBacklog(t *testing.T) {
	for text, want := range map[string]string{
		`{"waiting":3,"longestSeconds":90,"services":{"default/web":90,"shop/db":0}}`: "3 map[default/web:90s shop/db:0s]",
		"":                         "0 map[]",
		"{":                        "ignored",
		strings.Repeat("x", 10000): "ignored",
	} {
		m := newDemandAPI(t, measuredService(1, true))
		m.backlog = text
		var log strings.Builder
		w := m.watcher(Options{View: convert.View{Node: "self"}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		update, err := w.Load(t.Context(), LocalNode)
		if err != nil {
			t.Fatal(err)
		}
		backlog := update.Change.DemandBacklog
		if want == "ignored" {
			if backlog != nil || !strings.Contains(log.String(), "ignoring which measured demand waits") {
				t.Errorf("annotation %.10q: backlog %+v, log %s", text, backlog, log.String())
			}
			continue
		}
		ages := map[string]string{}
		for name, since := range backlog.Since {
			ages[name.String()] = fmt.Sprintf("%.0fs", m.renewed.Sub(since).Seconds())
		}
		if got := fmt.Sprint(backlog.Waiting, " ", ages); got != want {
			t.Errorf("annotation %s: backlog %s, want %s", text, got, want)
		}
	}
}
