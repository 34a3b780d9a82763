package demand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// fakeWriter accepts objects, or rejects some.
type fakeWriter struct {
	client.Writer
	mutex   sync.Mutex
	rejects map[string]error
	created []string
}

func (s *fakeWriter) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.rejects[object.GetName()]; err != nil {
		return err
	}
	s.created = append(s.created, object.GetName())
	return nil
}

// recordingObserver records the calls of an Observer.
type recordingObserver struct {
	Observer
	mutex             sync.Mutex
	published, failed int
	backlogs          []v1alpha1.DemandBacklog
}

func (o *recordingObserver) Queued(waiting v1alpha1.DemandBacklog) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.backlogs = append(o.backlogs, waiting)
}

func (o *recordingObserver) Published(string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.published++
}

func (o *recordingObserver) MeasureFailed() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.failed++
}

// TestRejectedWriteIsLoggedOnce also checks that a conflict with another client's write is not an
// error.
func TestRejectedWriteIsLoggedOnce(t *testing.T) {
	exists := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "servicedemands"}, "b")
	api := &fakeWriter{rejects: map[string]error{"a": errors.New("rejected by quota"), "b": exists}}
	log, observer := logs.New(t, "the publisher"), &recordingObserver{}
	r := &reconciler{writer: api, observer: observer, log: log.Logger(), logged: map[string]string{}}
	s, round := newState(nil), Round{Decided: map[string]Report{}}
	for _, name := range []string{"a", "b", "c", "d"} {
		s.services["shop/"+name] = service(name, name, policy.DemandSourceAnnotation, "measured")
		round.Decided["shop/"+name] = newReport(First, 2)
	}
	// The decisions are an hour old, so that all writes are due.
	began := time.Now().Add(-time.Hour)
	for number := range 3 {
		must.Succeed(t, r.publish(t.Context(), began.Add(time.Duration(number)*time.Minute), time.Minute, 10, s, round))
		r.writing.Wait()
	}
	slices.Sort(api.created)
	if got := fmt.Sprint(api.created); got != "[c c c d d d]" || observer.published != 6 || observer.failed != 3 {
		t.Errorf("created %s, %d observed, %d failures", got, observer.published, observer.failed)
	}
	if lines := log.Lines("object="); len(lines) != 1 || !strings.Contains(lines[0], "rejected by quota") {
		t.Errorf("log lines: %q", lines)
	}
	if fmt.Sprintf("%s", observer.backlogs) != "[  ]" {
		t.Errorf("backlogs: %v", observer.backlogs)
	}
	// After a success, another rejection is logged.
	api.rejects = nil
	must.Succeed(t, r.publish(t.Context(), began.Add(3*time.Minute), time.Minute, 10, s, round))
	r.writing.Wait()
	api.rejects = map[string]error{"a": errors.New("rejected by quota")}
	must.Succeed(t, r.publish(t.Context(), began.Add(4*time.Minute), time.Minute, 10, s, round))
	r.writing.Wait()
	if lines := log.Lines("object="); len(lines) != 2 {
		t.Errorf("log lines after another rejection: %q", lines)
	}
}

// TestScheduledWriteEndsWithTerm checks that a write which is not due by the end of the term is not performed: the next
// leader decides again.
func TestScheduledWriteEndsWithTerm(t *testing.T) {
	api := &fakeWriter{}
	r := &reconciler{writer: api, observer: &recordingObserver{}, log: logs.New(t, "the publisher").Logger(), logged: map[string]string{}}
	s, round := newState(map[string]string{"web": "1"}), Round{Decided: map[string]Report{"shop/web": newReport(First, 2)}}
	ctx, end := context.WithCancel(t.Context())
	must.Succeed(t, r.publish(ctx, time.Now().Add(time.Hour), time.Minute, 10, s, round))
	end()
	r.writing.Wait()
	if len(api.created) > 0 {
		t.Errorf("created: %v", api.created)
	}
}

// fakeLeases contains the Lease that is renewed.
type fakeLeases struct {
	coordinationclient.LeaseInterface
	renewed int
	last    coordinationv1.Lease
}

func (l *fakeLeases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return l.last.DeepCopy(), nil
}

func (l *fakeLeases) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.renewed++
	l.last = *lease
	return lease, nil
}

// TestTooManyZonesStillRenewsLease checks that the Lease is renewed although one Service has too many zones, because
// all other published state is current.
func TestTooManyZonesStillRenewsLease(t *testing.T) {
	lease := &fakeLeases{}
	r := &reconciler{
		writer: &fakeWriter{}, observer: &recordingObserver{}, log: logs.New(t, "the publisher").Logger(), logged: map[string]string{},
		leases: lease,
	}
	tooManyZones := newReport(First, 2)
	for zone := range v1alpha1.MaxZones + 1 {
		tooManyZones.Shares[fmt.Sprint(zone)] = 1. / (v1alpha1.MaxZones + 1)
	}
	s, round := newState(map[string]string{"web": "1"}), Round{Reporting: 9, Nodes: 10, Decided: map[string]Report{"shop/web": tooManyZones}}
	err := r.publish(t.Context(), time.Now(), time.Minute, 10, s, round)
	r.writing.Wait()
	if err == nil || !strings.Contains(err.Error(), "at most 512") || lease.renewed != 1 {
		t.Errorf("error %v; renewed %d times, want once", err, lease.renewed)
	}
}

// TestLeaseListsTheBacklog checks that the Lease lists what waits in the same round as the metric, until nothing waits,
// and keeps other annotations.
func TestLeaseListsTheBacklog(t *testing.T) {
	leases, observer := &fakeLeases{}, &recordingObserver{}
	leases.last.Annotations = map[string]string{"example.com/kept": "yes"}
	r := &reconciler{
		writer: &fakeWriter{}, observer: observer, log: logs.New(t, "the publisher").Logger(), logged: map[string]string{}, leases: leases,
	}
	s := newState(map[string]string{"db": "1", "web": "2"})
	round := Round{Reporting: 10, Nodes: 10, Decided: map[string]Report{
		"shop/db": newReport(First, 3), "shop/web": newReport(First, 2),
	}}
	began := time.Now().Add(-time.Hour)
	publish := func(after time.Duration) {
		t.Helper()
		const proxies = 100_000 // a write takes more than a minute
		must.Succeed(t, r.publish(t.Context(), began.Add(after), 30*time.Second, proxies, s, round))
		r.writing.Wait()
	}
	publish(0)
	const annotation = "vicinity.dev/demand-backlog"
	if got := leases.last.Annotations[annotation]; got != `{"waiting":1,"longestSeconds":0,"services":{"shop/web":0}}` {
		t.Errorf("annotation in the first round: %s", got)
	}
	publish(30 * time.Second) // both change again; the one that was written waits anew
	if got := leases.last.Annotations[annotation]; got != `{"waiting":2,"longestSeconds":30,"services":{"shop/db":0,"shop/web":30}}` {
		t.Errorf("annotation in the second round: %s", got)
	}
	round.Decided = nil
	publish(time.Minute)
	if len(leases.last.Annotations) != 1 || leases.renewed != 3 {
		t.Errorf("annotations %v after %d renewals, want only that of another author after 3", leases.last.Annotations, leases.renewed)
	}
	var waiting []int
	for _, backlog := range observer.backlogs {
		waiting = append(waiting, backlog.Waiting)
	}
	if fmt.Sprint(waiting) != "[1 2 0]" {
		t.Errorf("reported %v waiting changes, want [1 2 0]", waiting)
	}
}
