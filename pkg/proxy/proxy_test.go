package proxy_test

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// resized gives service-0 of manyServices another number of endpoints.
func resized(endpoints int) model.Change {
	name := model.ObjectName{Namespace: "default", Name: "service-0"}
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{name: sliceOf(name, endpoints)}}
}

// synced returns a proxy whose first sync of three Services with two endpoints each is done.
func synced(t testing.TB, kernel proxy.Kernel) *proxy.Proxy {
	t.Helper()
	p := starting(kernel)
	p.Apply(manyServices(3, 2))
	if report := mustSync(t, p); !report.Complete || report.Services != 3 || report.Total != 3 {
		t.Fatalf("the first sync reports %+v, want it complete with 3 Services", report)
	}
	return p
}

func TestDistrustMakesTheNextSyncComplete(t *testing.T) {
	kernel := &scriptedKernel{}
	p := synced(t, kernel)
	if report := mustSync(t, p); report.Complete || report.Services != 0 {
		t.Errorf("a sync without a change reports %+v, want nothing decided", report)
	}
	want := kernel.text(t)
	disturbance := ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Flush, Object: ruleset.SetObject{Set: ruleset.Services}}}}
	if err := kernel.Apply(disturbance); err != nil {
		t.Fatal(err)
	}
	p.Distrust()
	if report := mustSync(t, p); !report.Complete || report.Services != 3 {
		t.Errorf("a sync after distrust reports %+v, want it complete with 3 Services", report)
	}
	if diff := cmp.Diff(want, kernel.text(t)); diff != "" {
		t.Errorf("tables (-before the disturbance +after the sync):\n%s", diff)
	}
	p.Apply(resized(1))
	if report := mustSync(t, p); report.Complete || report.Services != 1 {
		t.Errorf("a sync after the complete one reports %+v, want one Service decided", report)
	}
}

func TestAFailedSyncIsMadeGoodByACompleteOne(t *testing.T) {
	for name, test := range map[string]struct {
		fail func(*scriptedKernel)
		says string
	}{
		"the kernel refuses the batch": {func(k *scriptedKernel) { k.refuse = refuseAll }, "commit 2 Services: "},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := synced(t, kernel)
			p.Apply(stickyService(1, 2))
			mustSync(t, p)
			p.Apply(stickyService(2, 3).Then(resized(1)))
			test.fail(kernel)
			_, err := p.Sync(t.Context())
			if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("error %v, want the injected one after %q", err, test.says)
			}
			kernel.refuse = nil
			if report := mustSync(t, p); !report.Complete || report.Services != 4 {
				t.Errorf("the next sync reports %+v, want it complete with 4 Services", report)
			}
			likeFreshStart(t, &kernel.memoryKernel, manyServices(3, 2).Then(stickyService(2, 3)).Then(resized(1)))
		})
	}
}

func TestTablesAreMadeAnewAfterTwoFailedCompleteSyncs(t *testing.T) {
	for name, test := range map[string]struct {
		fail    func(*scriptedKernel)
		rebuilt bool
	}{
		"the kernel refuses the batches": {func(k *scriptedKernel) { k.refuse = refuseAll }, true},
		// The existing tables cannot be the obstacle for a batch that was not tried.
		"the kernel cannot be asked at all": {func(k *scriptedKernel) { k.blind = errInjected }, false},
		// Nor for one for which there was no memory.
		"the kernel has no room for the batches": {func(k *scriptedKernel) {
			k.refuse = func(ruleset.Batch) error { return errors.Join(errInjected, syscall.ENOBUFS) }
		}, false},
		// Nor while they belong to a predecessor that has not ended yet.
		"another process owns the tables": {func(k *scriptedKernel) {
			k.refuse = func(ruleset.Batch) error { return errors.Join(errInjected, syscall.EPERM) }
		}, false},
		"another transaction came between": {func(k *scriptedKernel) {
			k.refuse = func(ruleset.Batch) error { return errors.Join(errInjected, syscall.ERESTART) }
		}, false},
		// A set that is full may be one that another program made too small.
		"a set is full": {func(k *scriptedKernel) {
			k.refuse = func(ruleset.Batch) error { return errors.Join(errInjected, syscall.ENFILE) }
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := synced(t, kernel)
			for _, failures := range []int{0, 1, 1, 2, 1, 3, 0} { // a success in between resets the count
				p.Distrust()
				test.fail(kernel)
				for range failures {
					if _, err := p.Sync(t.Context()); !errors.Is(err, errInjected) {
						t.Fatalf("error %v, want the injected one", err)
					}
				}
				kernel.refuse, kernel.blind, kernel.batches = nil, nil, nil
				mustSync(t, p)
				if got, want := slices.ContainsFunc(kernel.batches, rebuilds), test.rebuilt && failures >= 2; got != want {
					t.Errorf("after %d failures the tables were made anew: %v, want %v", failures, got, want)
				}
			}
		})
	}
}

// TestWhatStandsInTheWayIsOvercome: a map of our name and another type, which no batch can change into ours.
func TestWhatStandsInTheWayIsOvercome(t *testing.T) {
	kernel := &scriptedKernel{}
	theirs := ruleset.Set{Name: ruleset.Services.Name, Key: []ruleset.Type{ruleset.TypeAddr}, Value: []ruleset.Type{ruleset.TypeAddr}}
	if err := kernel.Apply(ruleset.Batch{Ops: []ruleset.Op{
		{Verb: ruleset.Add, Object: ruleset.TableObject{}}, {Verb: ruleset.Add, Object: ruleset.SetObject{Set: theirs}},
	}}); err != nil {
		t.Fatal(err)
	}
	p := starting(kernel)
	p.Apply(manyServices(3, 2))
	for range 2 {
		if _, err := p.Sync(t.Context()); !errors.Is(err, ruleset.ErrExist) {
			t.Fatalf("error %v, want %v", err, ruleset.ErrExist)
		}
	}
	mustSync(t, p)
	likeFreshStart(t, &kernel.memoryKernel, manyServices(3, 2))
}

// TestMapsOfOtherTypesAreOvercomeInTheKernel, even those that are read before anything is written.
func TestMapsOfOtherTypesAreOvercomeInTheKernel(t *testing.T) {
	everything, fresh := manyServices(3, 2).Then(stickyService(1, 2)), netns.New(t)
	onRealKernel(t, fresh, everything)
	for _, set := range []ruleset.Set{
		ruleset.Services, ruleset.Numbered, ruleset.NumberedCollided, ruleset.StickyPorts, ruleset.NodePortStickyOutside, ruleset.Affinity(0),
	} {
		t.Run(set.Name, func(t *testing.T) {
			namespace := netns.New(t)
			namespace.Load("table ip vicinity {\n\tmap " + set.Name + " {\n\t\ttype ipv4_addr : ipv4_addr\n" +
				"\t\telements = { 192.0.2.1 : 192.0.2.2 }\n\t}\n}\n")
			p := starting(dialled(t, namespace))
			p.Apply(everything)
			for range 2 {
				if _, err := p.Sync(t.Context()); err == nil {
					t.Error("a sync succeeds though a map is in the way")
				}
			}
			mustSync(t, p)
			if diff := cmp.Diff(listing(fresh), listing(namespace)); diff != "" {
				t.Errorf("tables (-fresh start +after the failures):\n%s", diff)
			}
		})
	}
}

func TestAFailingSweepKeepsServing(t *testing.T) {
	kernel := &scriptedKernel{refuse: refuseSweeps}
	p := synced(t, kernel)
	p.Apply(manyServices(3, manyEndpoints+1))
	mustSync(t, p)
	p.Apply(manyServices(3, manyEndpoints)) // no Service needs lb-34 any more
	for try := range 3 {
		report, err := p.Sync(t.Context())
		if err != nil {
			t.Fatalf("try %d: a sweep that fails makes the sync fail: %v", try+1, err)
		}
		if !errors.Is(report.Unswept, errInjected) {
			t.Errorf("try %d: unswept because of %v, want the injected error", try+1, report.Unswept)
		}
		if report.Complete {
			t.Errorf("try %d: complete, want only what changed", try+1)
		}
		if chains := kernel.Tables.Objects(model.IPv4).Chains; !slices.Contains(chains, "lb-33") || !slices.Contains(chains, "lb-34") {
			t.Errorf("try %d: chains %v, want what is needed and what could not be swept", try+1, chains)
		}
	}
	// Three failures in a row: the tables are made anew, and nothing is left to sweep.
	if report := mustSync(t, p); !report.Complete {
		t.Errorf("the sync after three failed sweeps reports %+v, want a complete one", report)
	}
	if chains := kernel.Tables.Objects(model.IPv4).Chains; slices.Contains(chains, "lb-34") {
		t.Errorf("chains %v, want lb-34 swept", chains)
	}
	likeFreshStart(t, &kernel.memoryKernel, manyServices(3, manyEndpoints))
}

// TestASweepForWhichTheKernelHasNoRoomIsNoReasonToMakeTheTablesAnew, however often it fails.
func TestASweepForWhichTheKernelHasNoRoomIsNoReasonToMakeTheTablesAnew(t *testing.T) {
	kernel := &scriptedKernel{}
	p := synced(t, kernel)
	p.Apply(manyServices(3, manyEndpoints+1))
	mustSync(t, p)
	kernel.refuse = func(batch ruleset.Batch) error {
		if err := refuseSweeps(batch); err != nil {
			return errors.Join(err, syscall.ENOBUFS)
		}
		return nil
	}
	p.Apply(manyServices(3, manyEndpoints))
	for range 5 {
		if report, err := p.Sync(t.Context()); err != nil || report.Unswept == nil || report.Complete {
			t.Errorf("report %+v and error %v, want something unswept", report, err)
		}
	}
	kernel.refuse, kernel.batches = nil, nil
	if report := mustSync(t, p); report.Complete || slices.ContainsFunc(kernel.batches, rebuilds) {
		t.Errorf("the sync after five sweeps without room reports %+v, want no more than the sweep", report)
	}
	likeFreshStart(t, &kernel.memoryKernel, manyServices(3, manyEndpoints))
}

func TestASweepThatWorksForgetsEarlierFailures(t *testing.T) {
	kernel := &scriptedKernel{}
	p := synced(t, kernel)
	p.Apply(manyServices(3, manyEndpoints+1))
	mustSync(t, p)
	for round := range 3 {
		p.Apply(manyServices(3, manyEndpoints+round%2))
		kernel.refuse = refuseSweeps
		for range 2 {
			if report, err := p.Sync(t.Context()); err != nil || report.Unswept == nil || report.Complete {
				t.Errorf("round %d: report %+v and error %v, want something unswept", round, report, err)
			}
		}
		kernel.refuse = nil
		if report := mustSync(t, p); report.Complete {
			t.Errorf("round %d: two failed sweeps made the sync complete", round)
		}
	}
}
