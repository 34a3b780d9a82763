package cluster

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

// answers is a ListWatch that answers as a test says.
type answers struct {
	list, watch error
	watched     watch.Interface
}

func (a *answers) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, a.list },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return a.watched, a.watch
		},
	}
}

// never is of a resource that must be there.
func never(error) bool { return false }

// heard records the calls of Interrupted and Resumed.
type heard struct {
	mu    sync.Mutex
	calls []string // all of them
	known map[string]outage
}

// now returns the present outages, by resource.
func (h *heard) now() map[string]outage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.known)
}

// all returns all calls.
func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// options returns the options that let it hear.
func (h *heard) options(log *slog.Logger) Options {
	h.known = map[string]outage{}
	return Options{
		Log: log,
		Interrupted: func(resource string, since time.Time, err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.known[resource] = outage{since, err}
			h.calls = append(h.calls, "interrupted: "+resource+": "+err.Error())
		},
		Resumed: func(resource string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.known, resource)
			h.calls = append(h.calls, "resumed: "+resource)
		},
	}
}

func TestAnOutageBeginsWithAFailureAndEndsWithAWatch(t *testing.T) { synctest.Test(t, tellOutages) }

func tellOutages(t *testing.T) {
	var log bytes.Buffer
	var hears heard
	o := newOutages(hears.options(slog.New(slog.NewTextHandler(&log, nil))))
	var api answers
	observed := o.observe("services", api.listWatch(), never)
	wants := func(what string, want error) {
		t.Helper()
		switch got := hears.now(); {
		case want == nil && len(got) > 0:
			t.Errorf("%s: %v, want no outage", what, got)
		case want != nil && (len(got) != 1 || !errors.Is(got["services"].err, want) || got["services"].since.IsZero()):
			t.Errorf("%s: %v, want an outage because of: %v", what, got, want)
		}
	}
	request := func(options metav1.ListOptions) {
		_, _ = observed.WatchWithContext(t.Context(), options)
		_, _ = observed.ListWithContext(t.Context(), options)
	}
	resource := schema.GroupResource{Resource: "services"}
	api = answers{watched: watch.NewFake()}
	request(metav1.ListOptions{})
	wants("all is well", nil)

	api.watch, api.list = apierrors.NewResourceExpired("too old"), apierrors.NewResourceExpired("too old")
	request(metav1.ListOptions{})
	wants("a version expired", nil)

	api.watch, api.list = apierrors.NewInvalid(schema.GroupKind{}, "", nil), nil
	request(metav1.ListOptions{SendInitialEvents: new(true)})
	wants("the API server cannot list by watching", nil)

	forbidden := apierrors.NewForbidden(resource, "", nil)
	api.watch, api.list = forbidden, apierrors.NewServiceUnavailable("later")
	request(metav1.ListOptions{})
	request(metav1.ListOptions{})
	wants("both are refused", forbidden)

	api.list = nil
	request(metav1.ListOptions{})
	wants("only lists are answered", forbidden)

	api = answers{watched: watch.NewFake()}
	request(metav1.ListOptions{})
	wants("all is well again", nil)
	if got := strings.Count(log.String(), "\n"); got != 2 {
		t.Errorf("%d lines were logged, want one for the beginning and one for the end:\n%s", got, &log)
	}

	api.watched = watch.NewEmptyWatch()
	asking, stopAsking := context.WithCancel(t.Context())
	go func() { _, _ = observed.WatchWithContext(asking, metav1.ListOptions{}) }() // until it is stopped
	synctest.Wait()
	wants("no answer came", errNoAnswer)
	time.Sleep(time.Minute)
	wants("no answer comes", errNoAnswer)
	stopAsking()
	synctest.Wait()

	o.forget("services")
	wants("the resource is no longer followed", nil)

	want := []string{
		"interrupted: services: " + forbidden.Error(), "resumed: services",
		"interrupted: services: " + errNoAnswer.Error(), "resumed: services",
	}
	if diff := cmp.Diff(want, hears.all()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	api.watch = errors.New("canceled")
	if _, err := observed.WatchWithContext(ended, metav1.ListOptions{}); err == nil {
		t.Error("the error is gone")
	}
	wants("we ended the request", nil)
}
