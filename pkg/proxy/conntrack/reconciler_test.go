//go:build linux

package conntrack

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

// reconciling runs a reconciler whose first passes fail, and returns what each pass was given and reported.
func reconciling(t *testing.T, failures int, during func(*Reconciler)) (given [][]string, ended []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newReconciler(func(_ context.Context, flows []selection.Flows, _ selection.Scope) (int, error) {
			var names []string
			for _, of := range flows {
				name := of.Frontend.String()
				for _, endpoint := range of.Inside {
					name += " " + endpoint.String()
				}
				names = append(names, name)
			}
			time.Sleep(time.Millisecond) // a look takes time
			given = append(given, names)
			if failures--; failures >= 0 {
				return 1, errBusy
			}
			return len(flows), nil
		})
		done := make(chan struct{})
		go func() {
			r.Run(ctx, func(passes map[model.Family]Pass, err error) {
				if (err != nil) != (failures >= 0) {
					t.Errorf("reported %v with %d failures to come", err, failures)
				}
				for _, family := range model.Families {
					pass, looked := passes[family]
					if measured := pass.Took > 0; measured != (looked && err == nil) {
						t.Errorf("%s: looked at %v, with error %v, measured %s", family, looked, err, pass.Took)
					}
					ended = append(ended, pass.Ended)
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
		"each family is looked at by itself": {
			during: func(r *Reconciler) { r.Note([]selection.Flows{six, one}, selection.Scope{}); synctest.Wait() },
			given:  [][]string{{"10.96.0.1:53/UDP 10.244.0.1:53"}, {"[fd00::1]:53/UDP"}},
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
			ended: []int{1, 0, 2, 0},
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

func TestWhoeverChangesAServiceOverAndOverKeepsNoProcessorBusy(t *testing.T) {
	const lasts = 10 * time.Second
	for _, test := range []struct {
		takes          time.Duration // one look
		fewest, passes int           // while changes come each millisecond
	}{
		{takes: 9 * time.Millisecond, fewest: 105, passes: 112}, // a tenth of the time: each 90 ms
		{takes: 2 * time.Second, fewest: 3, passes: 4},          // the table is large: one second later at most
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			passes, waited := 0, time.Duration(0)
			var mutex sync.Mutex
			var noted time.Time // the oldest change that no pass has looked at
			r := newReconciler(func(context.Context, []selection.Flows, selection.Scope) (int, error) {
				mutex.Lock()
				passes++
				waited = max(waited, time.Since(noted))
				noted = time.Time{}
				mutex.Unlock()
				time.Sleep(test.takes)
				return 0, nil
			})
			done := make(chan struct{})
			go func() { r.Run(ctx, func(map[model.Family]Pass, error) {}); close(done) }()
			for range lasts / time.Millisecond {
				mutex.Lock()
				if noted.IsZero() {
					noted = time.Now()
				}
				mutex.Unlock()
				r.Note([]selection.Flows{flowsOf("10.96.0.1:53")}, selection.Scope{})
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
			counted := passes
			cancel()
			<-done
			if counted < test.fewest || counted > test.passes {
				t.Errorf("%d passes of %s in %s, want %d to %d", counted, test.takes, lasts, test.fewest, test.passes)
			}
			if most := test.takes + restAtMost; waited > most {
				t.Errorf("a change waited for %s, want at most the pass before it and %s", waited, restAtMost)
			}
			if passes != counted+1 {
				t.Errorf("%d passes after the end, want one of what was noted last", passes-counted)
			}
		})
	}
}
