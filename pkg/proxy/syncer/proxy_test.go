package syncer_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// resized gives service-0 of manyServices another number of endpoints.
func resized(endpoints int) model.Change {
	name := model.ObjectName{Namespace: "default", Name: "service-0"}
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{name: sliceOf(name, endpoints)}}
}

// newSyncedProxy returns a proxy that has synced three Services with two endpoints each.
func newSyncedProxy(t testing.TB, kernel syncer.Kernel) *syncer.Proxy {
	t.Helper()
	p := newProxy(kernel)
	p.Apply(manyServices(3, 2))
	if report := mustSync(t, p); !report.Full || report.Decided != 3 || report.Applied != 3 {
		t.Fatalf("the first sync reports %+v, want a full one with 3 Services", report)
	}
	return p
}

func TestTablesAreRecreatedAfterTwoFailedFullSyncs(t *testing.T) {
	for name, test := range map[string]struct {
		fail    func(*scriptedKernel)
		rebuilt bool
	}{
		"the kernel rejects the batches": {func(k *scriptedKernel) { k.reject = rejectAll }, true},
		// The existing tables cannot be the cause if no batch was sent.
		"the kernel cannot be read": {func(k *scriptedKernel) { k.readErr = errInjected }, false},
		// Nor if there was no memory for it.
		"the kernel has no memory for the batches": {func(k *scriptedKernel) {
			k.reject = func(ruleset.Batch) error { return errors.Join(errInjected, syscall.ENOBUFS) }
		}, false},
		// Nor while they belong to a predecessor that has not ended yet.
		"another process owns the tables": {func(k *scriptedKernel) {
			k.reject = func(ruleset.Batch) error { return errors.Join(errInjected, syscall.EPERM) }
		}, false},
		"another transaction interfered": {func(k *scriptedKernel) {
			k.reject = func(ruleset.Batch) error { return errors.Join(errInjected, syscall.ERESTART) }
		}, false},
		// A set that is full may be one that another program created too small.
		"a set is full": {func(k *scriptedKernel) {
			k.reject = func(ruleset.Batch) error { return errors.Join(errInjected, syscall.ENFILE) }
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := newSyncedProxy(t, kernel)
			for _, failures := range []int{0, 1, 1, 2, 1, 3, 0} { // a success in between resets the count
				p.ForceFullSync()
				test.fail(kernel)
				for range failures {
					if _, err := p.Sync(t.Context()); !errors.Is(err, errInjected) {
						t.Fatalf("error %v, want the injected one", err)
					}
				}
				kernel.reject, kernel.readErr, kernel.batches = nil, nil, nil
				mustSync(t, p)
				if got, want := slices.ContainsFunc(kernel.batches, recreatesTable), test.rebuilt && failures >= 2; got != want {
					t.Errorf("after %d failures the tables were recreated: %v, want %v", failures, got, want)
				}
			}
		})
	}
}

// TestMapsOfOtherTypesAreReplacedInTheKernel, even those that are read before anything is written.
func TestMapsOfOtherTypesAreReplacedInTheKernel(t *testing.T) {
	everything, fresh := manyServices(3, 2).Merge(stickyService(1, 2)), netns.New(t)
	onRealKernel(t, fresh, everything)
	for _, set := range []ruleset.Set{
		ruleset.Services, ruleset.Numbered, ruleset.NumberedCollided, ruleset.StickyPorts, ruleset.NodePortStickyOutside, ruleset.Affinity(0),
	} {
		t.Run(set.Name, func(t *testing.T) {
			namespace := netns.New(t)
			namespace.Load("table ip vicinity {\n\tmap " + set.Name + " {\n\t\ttype ipv4_addr : ipv4_addr\n" +
				"\t\telements = { 192.0.2.1 : 192.0.2.2 }\n\t}\n}\n")
			p := newProxy(dialNFT(t, namespace))
			p.Apply(everything)
			for range 2 {
				if _, err := p.Sync(t.Context()); err == nil {
					t.Error("a sync succeeds despite a conflicting map")
				}
			}
			mustSync(t, p)
			if diff := cmp.Diff(listing(fresh), listing(namespace)); diff != "" {
				t.Errorf("tables (-fresh start +after the failures):\n%s", diff)
			}
		})
	}
}

func TestAFailingCleanupKeepsServing(t *testing.T) {
	kernel := &scriptedKernel{reject: rejectCleanups}
	p := newSyncedProxy(t, kernel)
	p.Apply(manyServices(3, manyEndpoints+1))
	mustSync(t, p)
	p.Apply(manyServices(3, manyEndpoints)) // no Service needs lb-34 any more
	for range 2 {                           // a successful cleanup resets the count
		mustFailCleanup(t, p)
	}
	kernel.reject = nil
	mustSync(t, p)
	p.Apply(manyServices(3, manyEndpoints+1))
	mustSync(t, p)
	kernel.reject = rejectCleanups
	p.Apply(manyServices(3, manyEndpoints))
	for try := range 3 {
		report, err := p.Sync(t.Context())
		if err != nil {
			t.Fatalf("try %d: a failed cleanup makes the sync fail: %v", try+1, err)
		}
		if !errors.Is(report.CleanupErr, errInjected) {
			t.Errorf("try %d: cleanup error %v, want the injected one", try+1, report.CleanupErr)
		}
		if report.Full {
			t.Errorf("try %d: full sync, want a partial one", try+1)
		}
		if chains := kernel.Tables.Objects(model.IPv4).Chains; !slices.Contains(chains, "lb-33") || !slices.Contains(chains, "lb-34") {
			t.Errorf("try %d: chains %v, want those in use and those that could not be deleted", try+1, chains)
		}
	}
	// Three consecutive failures: the tables are recreated, and nothing is left to clean up.
	if report := mustSync(t, p); !report.Full {
		t.Errorf("the sync after three failed cleanups reports %+v, want a full one", report)
	}
	if chains := kernel.Tables.Objects(model.IPv4).Chains; slices.Contains(chains, "lb-34") {
		t.Errorf("chains %v, want lb-34 deleted", chains)
	}
	checkLikeFreshStart(t, &kernel.memoryKernel, manyServices(3, manyEndpoints))
}

func mustFailCleanup(t *testing.T, p *syncer.Proxy) {
	t.Helper()
	if report, err := p.Sync(t.Context()); err != nil || report.CleanupErr == nil || report.Full {
		t.Errorf("report %+v and error %v, want a failed cleanup", report, err)
	}
}

// TestAFailedCleanupDoesNotRecreateTheTables, which would delete all affinity entries, if the kernel has no memory for
// it, however often, or if it applied the cleanup although it reported a failure.
func TestAFailedCleanupDoesNotRecreateTheTables(t *testing.T) {
	for name, test := range map[string]struct {
		isDone bool
		syncs  int
	}{"no memory": {false, 5}, "applied": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := newSyncedProxy(t, kernel)
			p.Apply(manyServices(3, manyEndpoints+1))
			mustSync(t, p)
			failures := 0
			kernel.reject = func(batch ruleset.Batch) error {
				if rejectCleanups(batch) == nil || test.isDone && failures > 0 {
					return nil
				}
				if failures++; test.isDone {
					return errors.Join(syscall.EINVAL, kernel.Apply(batch))
				}
				return syscall.ENOBUFS
			}
			p.Apply(manyServices(3, manyEndpoints))
			for range test.syncs {
				mustFailCleanup(t, p)
			}
			kernel.reject, kernel.batches = nil, nil
			if report := mustSync(t, p); report.Full != test.isDone || slices.ContainsFunc(kernel.batches, recreatesTable) {
				t.Errorf("the next sync reports %+v, or recreated the tables", report)
			}
			checkLikeFreshStart(t, &kernel.memoryKernel, manyServices(3, manyEndpoints))
		})
	}
}
