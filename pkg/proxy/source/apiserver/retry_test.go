package apiserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// asRequestError returns an error as net/http does.
func asRequestError(err error) error { return &url.Error{Op: "Get", URL: "https://api", Err: err} }

// connectionRefused is the error of clients while no API server runs. Reflectors wait by themselves after it.
var connectionRefused = asRequestError(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})

func TestRequestWithoutResponseIsRetried(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	for name, test := range map[string]struct {
		err        error
		isAnswered bool
	}{
		"no error":                              {nil, true},
		"the connection is refused":             {connectionRefused, false},
		"the connection is reset":               {asRequestError(os.NewSyscallError("read", syscall.ECONNRESET)), false},
		"the connection ends":                   {asRequestError(io.EOF), false},
		"no response in time":                   {asRequestError(os.ErrDeadlineExceeded), false},
		"the certificate is not trusted":        {asRequestError(x509.UnknownAuthorityError{}), false},
		"the name is unknown":                   {asRequestError(&net.DNSError{Name: "api"}), false},
		"client-go returns an empty watch":      {errNoResponse, false},
		"the response is truncated":             {fmt.Errorf("reading the response's body: %w", io.ErrUnexpectedEOF), false},
		"the version expired":                   {apierrors.NewResourceExpired("too old"), true},
		"too many requests":                     {apierrors.NewTooManyRequests("later", 1), true},
		"unavailable":                           {apierrors.NewServiceUnavailable("later"), true},
		"a timeout that the API server reports": {apierrors.NewTimeoutError("slow", 1), true},
		"forbidden":                             {apierrors.NewForbidden(services, "", nil), true},
		"missing":                               {apierrors.NewNotFound(services, ""), true},
		"a load balancer's page":                {apierrors.NewGenericServerResponse(502, "get", services, "", "bad gateway", 0, true), true},
		"a wrapped response":                    {fmt.Errorf("list: %w", apierrors.NewServiceUnavailable("later")), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				var failures []error
				response, err := retryUntilResponse(t.Context(), func(err error) { failures = append(failures, err) }, func() (string, error) {
					if tries++; tries == 1 {
						return "first", test.err
					}
					return "second", nil
				})
				if test.isAnswered && (response != "first" || !errors.Is(err, test.err) || len(failures) > 0) {
					t.Errorf("got %q, %v after %v; want the first response", response, err, failures)
				}
				if !test.isAnswered && (response != "second" || err != nil || len(failures) != 1 || !errors.Is(failures[0], test.err)) {
					t.Errorf("got %q, %v after %v; want the second response", response, err, failures)
				}
			})
		})
	}
}

func TestRetryBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time
		_, err := retryUntilResponse(t.Context(), func(error) {}, func() (struct{}, error) {
			if tries = append(tries, time.Now()); len(tries) == 100 {
				return struct{}{}, nil
			}
			return struct{}{}, connectionRefused
		})
		if err != nil {
			t.Fatal(err)
		}
		maxPauses := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, retryMax}
		distinct := map[time.Duration]bool{}
		for i, try := range tries[1:] {
			pause, bound := try.Sub(tries[i]), maxPauses[min(i, len(maxPauses)-1)]
			if pause < bound/2 || pause > bound {
				t.Errorf("pause %d is %v, want %v to %v", i+1, pause, bound/2, bound)
			}
			distinct[pause] = true
		}
		if len(distinct) < 50 {
			t.Errorf("%d pauses have only %d lengths", len(tries)-1, len(distinct))
		}
	})
}

func TestRetryStopsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var rec recorder
		tracker := newInterruptions(rec.options(slog.New(slog.DiscardHandler)))
		api := responses{list: connectionRefused, watch: connectionRefused}
		observed := tracker.observe("services", api.listWatch(), neverExpected)
		ended := make(chan error, 2)
		go func() {
			_, err := observed.ListWithContext(ctx, metav1.ListOptions{})
			ended <- err
		}()
		go func() {
			watched, err := observed.WatchWithContext(ctx, metav1.ListOptions{})
			if watched != nil {
				err = errors.New("unexpected watch")
			}
			ended <- err
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		synctest.Wait()
		for range cap(ended) {
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) || errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("request error %v, want that of the context: reflectors back off after a refused connection", err)
				}
			default:
				t.Error("a request continues although its context has ended")
			}
		}
		if diff := cmp.Diff([]string{"interrupted: services: " + connectionRefused.Error()}, rec.allCalls()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// A reflector that lists again waits once before, for 0.8 to 1.6 s.
const relistPause = 1600 * time.Millisecond

// Changes must arrive seconds after an interruption, even if it lasted for an hour.
func TestChangesArriveSoonAfterAnInterruption(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old resource version")
	for name, test := range map[string]struct {
		services  *flakyServer
		fromStart bool // the outage began before the program
		within    time.Duration
	}{
		"the version is still available":          {services: &flakyServer{}, within: retryMax},
		"the version expired":                     {services: &flakyServer{expired: expired}, within: retryMax + relistPause},
		"the first event reports that it expired": {services: &flakyServer{expired: expired, asEvent: true}, within: retryMax + relistPause},
		"started during the outage":               {services: &flakyServer{}, fromStart: true, within: retryMax},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, services := newAPI(time.Millisecond), test.services
				api.byKind[convert.Services] = services.listWatch()
				services.put(keyedService("before", 1, "*"))
				if test.fromStart {
					services.fail()
				}
				r := run(t, api.watcher)
				time.Sleep(time.Minute)
				if got := r.hasDelivered("before"); got == test.fromStart {
					t.Fatalf("the state before the outage was delivered: %v", got)
				}
				services.fail()
				time.Sleep(time.Hour)
				services.put(keyedService("after", 2, "*"))
				services.recover()
				within(t, test.within, func() bool { return r.hasDelivered("after") })
				synctest.Wait()
				for _, want := range []string{"watch interrupted", "watch resumed"} {
					if got := r.logged(want); got != 1 {
						t.Errorf("%q was logged %d times, want once", want, got)
					}
				}
				r.end(t)
			})
		})
	}
}

// within asserts that a condition becomes true within a duration of synctest time.
func within(t *testing.T, atMost time.Duration, condition func() bool) {
	t.Helper()
	began := time.Now()
	for ; !condition() && time.Since(began) < time.Hour; synctest.Wait() {
		time.Sleep(tick)
	}
	if took := time.Since(began); took > atMost+2*tick {
		t.Errorf("it took %v, want at most %v", took, atMost)
	}
}

// flakyServer is an API server with Services that is unavailable at times, and may lose earlier versions.
type flakyServer struct {
	expired error // the response to a watch from an earlier version; nil if the server still has those
	asEvent bool  // expired is sent as the first event of the watch

	mu       sync.Mutex
	isAway   bool
	services []corev1.Service
	watches  []*watch.FakeWatcher
}

func (f *flakyServer) put(service corev1.Service) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.services = append(f.services, service)
}

// fail ends all watches, and refuses every connection from now on.
func (f *flakyServer) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isAway = true
	for _, watched := range f.watches {
		watched.Stop()
	}
}

func (f *flakyServer) recover() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isAway = false
}

func (f *flakyServer) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.isAway {
				return nil, connectionRefused
			}
			version := metav1.ListMeta{ResourceVersion: strconv.Itoa(len(f.services))}
			return &corev1.ServiceList{ListMeta: version, Items: slices.Clone(f.services)}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			switch {
			case f.isAway:
				return nil, connectionRefused
			case options.SendInitialEvents != nil:
				return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
			}
			return f.watch(options.ResourceVersion)
		},
	}
}

// watch must be called with the lock held.
func (f *flakyServer) watch(version string) (watch.Interface, error) {
	known, err := strconv.Atoi(version)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	isExpired := f.expired != nil && known < len(f.services)
	if isExpired && !f.asEvent {
		return nil, f.expired
	}
	watched := watch.NewFakeWithChanSize(len(f.services)+1, false)
	f.watches = append(f.watches, watched)
	if isExpired {
		status := f.expired.(apierrors.APIStatus).Status()
		watched.Error(&status)
		return watched, nil
	}
	for i := range f.services[known:] {
		watched.Add(&f.services[known+i])
	}
	return watched, nil
}
