//go:build linux

package flows

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func flowsOf(frontend string, answered ...string) selection.Flows {
	addr := netip.MustParseAddrPort(frontend)
	flows := selection.Flows{Frontend: model.Frontend{Addr: addr.Addr(), Protocol: model.UDP, Port: addr.Port()}}
	for _, endpoint := range answered {
		flows.Inside = append(flows.Inside, netip.MustParseAddrPort(endpoint))
	}
	return flows
}

var errBusy = errors.New("the table is busy")

// reconciling runs a reconciler whose first passes fail, and returns what each pass was given, and how many flows of which
// family were reported.
func reconciling(t *testing.T, failures int, during func(*Reconciler)) (given [][]string, ended []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newReconciler(func(_ context.Context, noted Noted) (map[model.Family]Pass, error) {
			flows, _ := noted()
			var names []string
			passes := map[model.Family]Pass{}
			for _, of := range flows {
				name := of.Frontend.String()
				for _, endpoint := range of.Inside {
					name += " " + endpoint.String()
				}
				names = append(names, name)
				pass := passes[model.FamilyOf(of.Frontend.Addr)]
				pass.Ended++
				passes[model.FamilyOf(of.Frontend.Addr)] = pass
			}
			given = append(given, names)
			if failures--; failures >= 0 {
				return passes, errBusy
			}
			return passes, nil
		})
		done := make(chan struct{})
		go func() {
			r.Run(ctx, func(passes map[model.Family]Pass, err error) {
				if (err != nil) != (failures >= 0) {
					t.Errorf("reported %v with %d failures to come", err, failures)
				}
				for _, family := range model.Families {
					ended = append(ended, passes[family].Ended)
				}
			})
			close(done)
		}()
		during(r)
		cancel()
		<-done
	})
	return given, ended
}

func TestTheReconciler(t *testing.T) {
	one, other, six := flowsOf("10.96.0.1:53", "10.244.0.1:53"), flowsOf("10.96.0.2:53"), flowsOf("[fd00::1]:53")
	for name, test := range map[string]struct {
		failures int
		during   func(*Reconciler)
		given    [][]string
		ended    []int // IPv4, IPv6 of each pass
	}{
		"nothing noted, nothing read": {
			during: func(r *Reconciler) { r.Note(nil, selection.Scope{}); synctest.Wait() },
		},
		"what is noted together is looked at together": {
			during: func(r *Reconciler) { r.Note([]selection.Flows{six, one}, selection.Scope{}); synctest.Wait() },
			given:  [][]string{{"10.96.0.1:53/UDP 10.244.0.1:53", "[fd00::1]:53/UDP"}},
			ended:  []int{1, 1},
		},
		"what fails is looked at again a second later": {
			failures: 2,
			during: func(r *Reconciler) {
				r.Note([]selection.Flows{one}, selection.Scope{})
				synctest.Wait()
				time.Sleep(2 * retryAfter)
				synctest.Wait()
			},
			given: [][]string{{"10.96.0.1:53/UDP 10.244.0.1:53"}, {"10.96.0.1:53/UDP 10.244.0.1:53"}, {"10.96.0.1:53/UDP 10.244.0.1:53"}},
			ended: []int{1, 0, 1, 0, 1, 0},
		},
		"with what is true by then": {
			failures: 1,
			during: func(r *Reconciler) {
				r.Note([]selection.Flows{one, other}, selection.Scope{})
				synctest.Wait()
				r.Note([]selection.Flows{flowsOf("10.96.0.1:53")}, selection.Scope{})
				synctest.Wait()
			},
			given: [][]string{{"10.96.0.1:53/UDP 10.244.0.1:53", "10.96.0.2:53/UDP"}, {"10.96.0.1:53/UDP", "10.96.0.2:53/UDP"}},
			ended: []int{2, 0, 2, 0},
		},
		"what is noted when the program ends is done before": {
			during: func(r *Reconciler) {
				synctest.Wait()
				r.mutex.Lock()
				r.pending[one.Frontend] = one // noted at the very moment
				r.mutex.Unlock()
			},
			given: [][]string{{"10.96.0.1:53/UDP 10.244.0.1:53"}},
			ended: []int{1, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			given, ended := reconciling(t, test.failures, test.during)
			if diff := cmp.Diff(test.given, given, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("passes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.ended, ended, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("ended (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhatIsNotedBeforeALookBeginsIsPartOfIt: there may be a long rest before.
func TestWhatIsNotedBeforeALookBeginsIsPartOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var looks []int
		r := newReconciler(func(_ context.Context, noted Noted) (map[model.Family]Pass, error) {
			time.Sleep(time.Second)
			flows, _ := noted()
			looks = append(looks, len(flows))
			return nil, nil
		})
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx, func(map[model.Family]Pass, error) {}) })
		for _, frontend := range []string{"10.96.0.1:53", "10.96.0.2:53", "10.96.0.3:53"} {
			r.Note([]selection.Flows{flowsOf(frontend)}, selection.Scope{})
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		cancel()
		running.Wait()
		if diff := cmp.Diff([]int{3}, looks); diff != "" {
			t.Errorf("looks at how many frontends (-want +got):\n%s", diff)
		}
	})
}

// TestWhoWasAnEndpointIsNotForgottenBeforeALookEnds, whether it waits for one, or one has failed.
func TestWhoWasAnEndpointIsNotForgottenBeforeALookEnds(t *testing.T) {
	known := func(isIncomplete bool, endpoints ...netip.AddrPort) selection.Flows {
		flows := flowsOf("0.0.0.0:30053")
		flows.Endpoints, flows.Incomplete = endpoints, isIncomplete
		return flows
	}
	var given []selection.Flows
	failures := 1
	r := newReconciler(func(_ context.Context, noted Noted) (map[model.Family]Pass, error) {
		flows, _ := noted()
		given = append(given, flows...)
		if failures--; failures >= 0 {
			return nil, errBusy
		}
		return nil, nil
	})
	look := func(noted ...selection.Flows) {
		for _, flows := range noted {
			r.Note([]selection.Flows{flows}, selection.Scope{})
		}
		r.pass(t.Context(), func(map[model.Family]Pass, error) {})
	}
	look(known(true, endpointA), known(false, endpointB))
	look(known(false))
	look(known(false, endpointA))
	want := []selection.Flows{known(true, endpointB, endpointA), known(true, endpointB, endpointA), known(false, endpointA)}
	if diff := cmp.Diff(want, given, cmpopts.EquateComparable(netip.AddrPort{}, model.Frontend{})); diff != "" {
		t.Errorf("looks (-want +got):\n%s", diff)
	}
}
