package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
)

// server accepts Events as an API server does. Any other request panics. e2e/events tests with a real one.
type server struct {
	eventsv1client.EventInterface
	namespace string
	*state
}

type state struct {
	mutex    sync.Mutex
	created  map[string]*eventsv1.Event
	received []request
	// reject returns the error of a request, before anything else; nil accepts all. The mutex is held.
	reject func(ctx context.Context) error
}

// request is one request, and its time.
type request struct {
	name string
	at   time.Time
}

func newServer() *server { return &server{state: &state{created: map[string]*eventsv1.Event{}}} }

func (s *server) Events(namespace string) eventsv1client.EventInterface {
	return &server{namespace: namespace, state: s.state}
}

func (s *server) Create(ctx context.Context, event *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := s.namespace + "/" + event.Name
	s.received = append(s.received, request{name, time.Now()})
	if s.reject != nil {
		if err := s.reject(ctx); err != nil {
			return nil, err
		}
	}
	if s.created[name] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, event.Name)
	}
	s.created[name] = event
	return event, nil
}

func (s *state) events() map[string]*eventsv1.Event {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return maps.Clone(s.created)
}

func (s *state) requests() []request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.received)
}

// output is a log that can be read while it is written.
type output struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (o *output) Write(line []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(line)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}

// reportedKeys returns the notes that a recorder would not repeat now.
func reportedKeys(r *Recorder) []dedupKey {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Collect(maps.Keys(r.reported))
}

// proxy returns a recorder that runs until the test ends, and its log.
func proxy(t *testing.T, api *server, node string) (*Recorder, *output) {
	log := &output{}
	r := New(api, node, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r, log
}

// advance advances the time, and waits until every goroutine is idle.
func advance(duration time.Duration) {
	time.Sleep(duration)
	synctest.Wait()
}

func invalidEvent(i int) Event { return rejected(web, fmt.Sprintf("reason %d", i)) }

func TestAnEventIsCreatedWithinTheJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r, log := proxy(t, api, "node-1")
		reported := time.Now()
		r.Report(invalidEvent(1))
		advance(jitter)
		if len(api.events()) != 1 || len(api.requests()) != 1 {
			t.Fatalf("%d created with %d requests, want one", len(api.events()), len(api.requests()))
		}
		for name, event := range api.events() {
			if !event.EventTime.Time.Equal(reported) || !strings.HasPrefix(name, "shop/vicinity-proxy.") || event.ReportingInstance != "node-1" {
				t.Errorf("got %s: %+v", name, event)
			}
		}
		if log.String() != "" || r.Dropped() != 0 {
			t.Errorf("%d dropped, log: %s", r.Dropped(), log)
		}
	})
}

func TestProxiesThatReportTheSameCreateOneEventAtDifferentTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const proxies = 100
		api := newServer()
		var recorders []*Recorder
		for i := range proxies {
			r, _ := proxy(t, api, fmt.Sprintf("node-%d", i))
			recorders = append(recorders, r)
			r.Report(invalidEvent(1))
		}
		advance(jitter)
		if len(api.events()) != 1 || len(api.requests()) != proxies {
			t.Errorf("%d Events with %d requests, want 1 with %d", len(api.events()), len(api.requests()), proxies)
		}
		seconds := map[int64]int{}
		for _, request := range api.requests() {
			seconds[request.at.Unix()]++
		}
		// Ten on average. Fifty in one would be extremely improbable.
		for second, count := range seconds {
			if count > proxies/2 {
				t.Errorf("%d requests in second %d", count, second)
			}
		}
		for _, r := range recorders {
			if r.Dropped() != 0 {
				t.Errorf("an existing Event was counted as dropped")
			}
		}
	})
}

func TestASentenceIsReportedOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r, _ := proxy(t, api, "node-1")
		for pid := range uint32(179) { // for an hour less a minute
			r.Report(invalidEvent(1))
			r.Report(ExternalChange("node-1", "nft", pid))
			advance(20 * time.Second)
		}
		if len(api.requests()) != 2 {
			t.Errorf("%d requests within an hour, want 2", len(api.requests()))
		}
		r.Report(ExternalChange("node-1", "iptables", 1))
		advance(2 * time.Minute)
		r.Report(invalidEvent(1))
		r.Report(ExternalChange("node-1", "nft", 7))
		advance(time.Minute)
		if len(api.requests()) != 5 {
			t.Errorf("%d requests after the hour and another process, want 5", len(api.requests()))
		}
	})
}

func TestManyReportsAreBoundedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r, log := proxy(t, api, "node-1")
		for i := range 10000 {
			r.Report(invalidEvent(i))
		}
		r.Report(Started("node-1", "v1")) // a namespace of its own
		synctest.Wait()
		if r.Dropped() != 10000+1-maxWaiting {
			t.Errorf("%d dropped, want all but %d", r.Dropped(), maxWaiting)
		}
		advance(jitter)
		if len(api.requests()) < burst || len(api.requests()) > burst+1 {
			t.Errorf("%d requests at once, want %d", len(api.requests()), burst)
		}
		isCreated := false
		for _, event := range api.events() {
			isCreated = isCreated || event.Reason == "Starting"
		}
		if !isCreated {
			t.Error("many reports in one namespace delayed the Event about the node")
		}
		advance(time.Minute)
		if got := len(api.requests()); got < burst+6 || got > burst+7 {
			t.Errorf("%d requests a minute later, want %d", got, burst+6)
		}
		advance(time.Hour)
		if len(api.events()) != maxWaiting || len(reportedKeys(r)) > maxWaiting {
			t.Errorf("%d were created and %d recorded as reported, want %d", len(api.events()), len(reportedKeys(r)), maxWaiting)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "event queue is full") {
			t.Errorf("%d lines of log, want one: %s", lines, log)
		}
		r.Report(invalidEvent(9999))
		advance(jitter)
		if len(api.events()) != maxWaiting+1 {
			t.Errorf("a dropped event cannot be reported later")
		}
	})
}

func TestDroppedEventsAreLoggedAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		api.reject = func(context.Context) error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")
		}
		r, log := proxy(t, api, "node-1")
		for i := range 12 {
			r.Report(invalidEvent(i))
			advance(time.Minute)
		}
		if got := strings.Count(log.String(), "\n"); got != 2 || r.Dropped() != 12 {
			t.Errorf("%d lines about %d dropped events, want 2 about 12: %s", got, r.Dropped(), log)
		}
		if !strings.Contains(log.String(), `about="Service shop/web" reason=Invalid`) || !strings.Contains(log.String(), "create Event shop/") {
			t.Errorf("the log does not name the dropped event: %s", log)
		}
	})
}

func TestAttempts(t *testing.T) {
	unavailable := errors.New("connect: connection refused")
	resource := schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	forbidden := apierrors.NewForbidden(resource, "x", nil)
	terminating := apierrors.NewForbidden(resource, "x", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for title, test := range map[string]struct {
		answers  []error // of the attempts, one after the other; then success
		requests int
		dropped  int
	}{
		"success":                          {nil, 1, 0},
		"unavailable for a while":          {[]error{unavailable, unavailable, unavailable}, 4, 0},
		"busy":                             {[]error{apierrors.NewTooManyRequests("later", 1)}, 2, 0},
		"internal error":                   {[]error{apierrors.NewInternalError(unavailable), apierrors.NewServiceUnavailable("not yet")}, 3, 0},
		"unavailable for long":             {slices.Repeat([]error{unavailable}, 20), 21, 0},
		"it exists":                        {[]error{apierrors.NewAlreadyExists(resource, "x")}, 1, 0},
		"it exists, after a lost response": {[]error{unavailable, apierrors.NewAlreadyExists(resource, "x")}, 2, 0},
		"RBAC is not read yet":             {[]error{apierrors.NewUnauthorized("who"), forbidden}, 3, 0},
		"no permission for long":           {slices.Repeat([]error{forbidden}, 20), 21, 0},
		"the namespace is terminating":     {[]error{terminating}, 1, 1},
		"no such namespace":                {[]error{apierrors.NewNotFound(resource, "x")}, 1, 1},
		"the API server finds it invalid":  {[]error{apierrors.NewBadRequest("why")}, 1, 1},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newServer()
				api.reject = func(context.Context) error {
					if n := len(api.received); n <= len(test.answers) {
						return test.answers[n-1]
					}
					return nil
				}
				r, _ := proxy(t, api, "node-1")
				r.Report(invalidEvent(1))
				advance(50 * time.Minute)
				if len(api.requests()) != test.requests || r.Dropped() != test.dropped {
					t.Errorf("%d requests and %d dropped, want %d and %d", len(api.requests()), r.Dropped(), test.requests, test.dropped)
				}
				for _, request := range api.requests() {
					if request.name != api.requests()[0].name {
						t.Errorf("tried as %s and as %s", api.requests()[0].name, request.name)
					}
				}
				before := len(api.requests())
				r.Report(invalidEvent(1))
				advance(time.Minute)
				if moreRequests := len(api.requests()) - before; moreRequests != test.dropped {
					t.Errorf("the same sentence caused %d more requests, want %d", moreRequests, test.dropped)
				}
			})
		})
	}
}

func TestAnUnresponsiveServerIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		api.reject = func(ctx context.Context) error {
			if len(api.received) > 2 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		r, _ := proxy(t, api, "node-1")
		r.Report(invalidEvent(1))
		r.Report(invalidEvent(2))
		advance(2 * time.Minute)
		if len(api.events()) != 2 || r.Dropped() != 0 {
			t.Errorf("%d created and %d dropped, want 2 and none", len(api.events()), r.Dropped())
		}
	})
}

// outage makes an API server reject everything until end is called.
func outage(api *server) (end func()) {
	set := func(reject func(context.Context) error) {
		api.mutex.Lock()
		defer api.mutex.Unlock()
		api.reject = reject
	}
	set(func(context.Context) error { return errors.New("connect: connection refused") })
	return func() { set(nil) }
}

func TestEventsReportedDuringAnOutageAreCreatedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hours, sentences = 3, 20
		api := newServer()
		end := outage(api)
		r, log := proxy(t, api, "node-1")
		for range hours * 60 { // a problem that lasts is reported again and again
			for i := range sentences {
				r.Report(invalidEvent(i))
			}
			advance(time.Minute)
		}
		// At most once a minute, after the first minutes.
		if got := len(api.requests()); got < hours*30 || got > hours*60+5 {
			t.Errorf("%d requests in %d hours without a response", got, hours)
		}
		if lines := strings.Count(log.String(), "\n"); lines < hours*5 || lines > hours*6 {
			t.Errorf("%d lines of log in %d hours, want one in 10 minutes: %s", lines, hours, log)
		}
		if line, _, _ := strings.Cut(log.String(), "\n"); !strings.Contains(line, "an Event is late") ||
			!strings.Contains(line, "dropped=0 waiting=20 about=\"Service shop/web\"") || !strings.Contains(line, "connection refused") {
			t.Errorf("the log does not name the late event: %s", line)
		}
		end()
		advance(2*time.Minute + sentences*interval)
		if len(api.events()) != sentences || r.Dropped() != 0 || len(reportedKeys(r)) != sentences {
			t.Errorf("%d created, %d dropped, %d recorded as reported, want %d, none, %d",
				len(api.events()), r.Dropped(), len(reportedKeys(r)), sentences, sentences)
		}
	})
}

func TestTooManyEventsDuringAnOutageAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 30
		api := newServer()
		end := outage(api)
		r, _ := proxy(t, api, "node-1")
		for i := range maxWaiting + more {
			r.Report(invalidEvent(i))
			advance(time.Minute)
		}
		if len(reportedKeys(r)) != maxWaiting || r.Dropped() != more {
			t.Errorf("%d are queued and %d were dropped, want %d and %d", len(reportedKeys(r)), r.Dropped(), maxWaiting, more)
		}
		end()
		advance(2*time.Minute + maxWaiting*interval)
		if len(api.events()) != maxWaiting || r.Dropped() != more {
			t.Errorf("%d created and %d dropped, want %d and %d", len(api.events()), r.Dropped(), maxWaiting, more)
		}
	})
}

func TestANamespaceWithoutQuotaDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		api.reject = func(context.Context) error {
			if strings.HasPrefix(api.received[len(api.received)-1].name, "full/") {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "x", errors.New("exceeded quota"))
			}
			return nil
		}
		r, _ := proxy(t, api, "node-1")
		for i := range 20 {
			r.Report(rejected(Reference{Kind: "Service", Namespace: "full", Name: "web"}, fmt.Sprintf("reason %d", i)))
		}
		advance(time.Hour)
		for i := range 10 {
			r.Report(invalidEvent(i))
		}
		// The longest pause; from then on every other attempt is for the other namespace.
		advance(2*time.Minute + 10*2*interval)
		if len(api.events()) != 10 || r.Dropped() != 0 {
			t.Errorf("%d created and %d dropped, want 10 and none", len(api.events()), r.Dropped())
		}
	})
}

func TestReportDoesNotWaitForRun(t *testing.T) {
	r := New(newServer(), "node-1", slog.New(slog.DiscardHandler))
	for i := range 2 * maxWaiting {
		r.Report(invalidEvent(i))
	}
	if r.Dropped() != maxWaiting {
		t.Errorf("%d dropped, want %d", r.Dropped(), maxWaiting)
	}
}

func TestForeignTextsAreTruncatedBeforeTheyAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r, _ := proxy(t, api, "node-1")
		event := ExternalChange("node-1", strings.Repeat("\x1b", 1<<20), 1)
		r.Report(event)
		advance(jitter)
		var notes []string
		for _, event := range api.events() {
			notes = append(notes, event.Note)
		}
		if diff := cmp.Diff([]string{truncateNote(event.Note)}, notes); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
		for _, key := range reportedKeys(r) {
			if len(key.topic) > maxNote {
				t.Errorf("a topic of %d bytes is stored, want at most maxNote", len(key.topic))
			}
		}
	})
}

func TestManyMayReportAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r, _ := proxy(t, api, "node-1")
		var reporters sync.WaitGroup
		for i := range 8 {
			reporters.Go(func() {
				for j := range 10 {
					r.Report(invalidEvent(10*i + j))
				}
			})
		}
		reporters.Wait()
		advance(time.Hour)
		if len(api.events()) != 80 || r.Dropped() != 0 {
			t.Errorf("%d created and %d dropped, want 80 and none", len(api.events()), r.Dropped())
		}
	})
}
