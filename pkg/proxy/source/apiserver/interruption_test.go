package apiserver

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// responses is a ListWatch with the responses that a test sets.
type responses struct {
	list, watch error
	watched     watch.Interface
}

func (r *responses) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, r.list },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return r.watched, r.watch
		},
	}
}

// neverExpected is isExpected of a resource that is not optional.
func neverExpected(error) bool { return false }

// recorder records the calls of OnInterrupted and OnResumed.
type recorder struct {
	mu          sync.Mutex
	calls       []string // all of them
	interrupted map[string]interruption
}

// current returns the current interruptions, by resource.
func (r *recorder) current() map[string]interruption {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.interrupted)
}

// allCalls returns all calls.
func (r *recorder) allCalls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// options returns the options that call the recorder.
func (r *recorder) options(log *slog.Logger) Options {
	r.interrupted = map[string]interruption{}
	return Options{
		Log: log,
		OnInterrupted: func(resource string, since time.Time, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.interrupted[resource] = interruption{since, err}
			r.calls = append(r.calls, "interrupted: "+resource+": "+err.Error())
		},
		OnResumed: func(resource string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.interrupted, resource)
			r.calls = append(r.calls, "resumed: "+resource)
		},
	}
}

func TestInterruptionStartAndEnd(t *testing.T) {
	synctest.Test(t, reportInterruptions)
}

func reportInterruptions(t *testing.T) {
	var log bytes.Buffer
	var rec recorder
	tracker := newInterruptions(rec.options(slog.New(slog.NewTextHandler(&log, nil))))
	var api responses
	observed := tracker.observe("services", api.listWatch(), neverExpected)
	expect := func(what string, want error) {
		t.Helper()
		switch got := rec.current(); {
		case want == nil && len(got) > 0:
			t.Errorf("%s: %v, want no interruption", what, got)
		case want != nil && (len(got) != 1 || !errors.Is(got["services"].err, want) || got["services"].since.IsZero()):
			t.Errorf("%s: %v, want an interruption because of: %v", what, got, want)
		}
	}
	request := func(options metav1.ListOptions) {
		_, _ = observed.WatchWithContext(t.Context(), options)
		_, _ = observed.ListWithContext(t.Context(), options)
	}
	resource := schema.GroupResource{Resource: "services"}
	api = responses{watched: watch.NewFake()}
	request(metav1.ListOptions{})
	expect("the watch works", nil)

	api.watch, api.list = apierrors.NewResourceExpired("too old"), apierrors.NewResourceExpired("too old")
	request(metav1.ListOptions{})
	expect("a version expired", nil)

	api.watch, api.list = apierrors.NewInvalid(schema.GroupKind{}, "", nil), nil
	request(metav1.ListOptions{SendInitialEvents: new(true)})
	expect("the API server cannot list by watching", nil)

	forbidden := apierrors.NewForbidden(resource, "", nil)
	api.watch, api.list = forbidden, apierrors.NewServiceUnavailable("later")
	request(metav1.ListOptions{})
	request(metav1.ListOptions{})
	expect("both fail", forbidden)

	api.list = nil
	request(metav1.ListOptions{})
	expect("only lists succeed", forbidden)

	api = responses{watched: watch.NewFake()}
	request(metav1.ListOptions{})
	expect("the watch works again", nil)
	if got := strings.Count(log.String(), "\n"); got != 2 {
		t.Errorf("%d lines were logged, want one for the start and one for the end:\n%s", got, &log)
	}

	api.watched = watch.NewEmptyWatch()
	pending, cancelPending := context.WithCancel(t.Context())
	go func() { _, _ = observed.WatchWithContext(pending, metav1.ListOptions{}) }() // until it is stopped
	synctest.Wait()
	expect("no response", errNoResponse)
	time.Sleep(time.Minute)
	expect("no response for a minute", errNoResponse)
	cancelPending()
	synctest.Wait()

	tracker.forget("services")
	expect("the resource is no longer watched", nil)

	want := []string{
		"interrupted: services: " + forbidden.Error(), "resumed: services",
		"interrupted: services: " + errNoResponse.Error(), "resumed: services",
	}
	if diff := cmp.Diff(want, rec.allCalls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	api.watch = errors.New("canceled")
	if _, err := observed.WatchWithContext(ended, metav1.ListOptions{}); err == nil {
		t.Error("got no error")
	}
	expect("the request was cancelled", nil)
}
