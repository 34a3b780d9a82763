package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// manyMixedServices returns more Services than fit into one part of a first sync.
func manyMixedServices() model.Change { return mixedServices(1100) }

// singleTransactionTables returns the tables, and the number of written elements, after a first sync with an empty
// table of ours, which is one transaction.
func singleTransactionTables(t *testing.T, everything model.Change) (kernel *memoryKernel, written map[model.Family]int) {
	t.Helper()
	kernel = &memoryKernel{}
	for _, family := range model.Families {
		table := ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Family: family, Object: ruleset.TableObject{}}}}
		if err := kernel.Apply(table); err != nil {
			t.Fatal(err)
		}
	}
	p := newProxy(kernel)
	p.Apply(everything)
	report := mustSync(t, p)
	if len(kernel.batches) != 1 {
		t.Fatalf("with an existing table %d batches were written, want 1", len(kernel.batches))
	}
	return kernel, report.Added
}

func hasChains(batch ruleset.Batch) bool {
	return slices.ContainsFunc(batch.Ops, func(op ruleset.Op) bool {
		_, isChain := op.Object.(ruleset.ChainObject)
		return isChain
	})
}

func setsOf(batch ruleset.Batch, family model.Family) []ruleset.Set {
	var sets []ruleset.Set
	for _, op := range batch.Ops {
		if object, isSet := op.Object.(ruleset.SetObject); isSet && op.Family == family {
			sets = append(sets, object.Set)
		}
	}
	return sets
}

func sameName(a, b ruleset.Set) bool { return a.Name == b.Name }

// TestAFirstSyncWritesChainsLast: without chains no packet reaches the elements, so the elements may be written in
// parts.
func TestAFirstSyncWritesChainsLast(t *testing.T) {
	everything := manyMixedServices()
	want, written := singleTransactionTables(t, everything)
	kernel := &memoryKernel{}
	p := newProxy(kernel)
	p.Apply(everything)
	report := mustSync(t, p)
	if got := kernel.text(t); got != want.text(t) {
		t.Error("the tables differ from those of a single transaction")
	}
	if fmt.Sprint(report.Added) != fmt.Sprint(written) {
		t.Errorf("the report has %v added elements, want %v", report.Added, written)
	}
	last := len(kernel.batches) - 1
	if last < 2 {
		t.Fatalf("%d batches were written, want two or more before that with the chains", last+1)
	}
	if diff := cmp.Diff(ruleset.StaticSets, setsOf(kernel.batches[0], model.IPv4), cmp.Comparer(sameName)); diff != "" {
		t.Errorf("sets are created in another order (-want +got):\n%s", diff)
	}
	early, late := 0, 0
	for i, batch := range kernel.batches {
		if hasChains(batch) != (i == last) {
			t.Errorf("batch %d of %d has chains: %v", i+1, last+1, i != last)
		}
		for _, family := range model.Families {
			if count := batch.Count(family, ruleset.Add); i == last {
				late += count
			} else {
				early += count
			}
		}
	}
	if late*2 > early {
		t.Errorf("%d elements were written with the chains and %d before, want at least twice as many before", late, early)
	}
}

// TestAFirstSyncThatFailsInAnyPartIsDoneAtOnce: after the failure the same sync writes everything in one transaction.
func TestAFirstSyncThatFailsInAnyPartIsDoneAtOnce(t *testing.T) {
	everything := manyMixedServices()
	want, written := singleTransactionTables(t, everything)
	for _, applied := range []bool{false, true} {
		for part := range 2 {
			t.Run(fmt.Sprintf("part %d, applied %v", part+1, applied), func(t *testing.T) {
				commits := 0
				kernel := &faultyKernel{memoryKernel: &memoryKernel{}, fails: func() (before, after bool) {
					commits++
					return commits == part+1 && !applied, commits == part+1 && applied
				}}
				p := newProxy(kernel)
				p.Apply(everything)
				report := mustSync(t, p)
				if got := kernel.text(t); got != want.text(t) {
					t.Error("the tables differ from those of a single transaction")
				}
				// Three commits follow the failed one: the deletion of the tables, and the two batches of a full sync, of which
				// the first is empty.
				if want := part + 1 + 3; commits != want {
					t.Errorf("%d commits, want %d: no other part is written after a failure", commits, want)
				}
				if fmt.Sprint(report.Added) != fmt.Sprint(written) {
					t.Errorf("the report has %v added elements, want %v", report.Added, written)
				}
			})
		}
	}
}

// TestACancelledFirstSyncLeavesNoChains: the elements that the sync wrote affect no packet.
func TestACancelledFirstSyncLeavesNoChains(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	kernel := &scriptedKernel{committed: func(ruleset.Batch) { cancel() }}
	kernel.reject = func(ruleset.Batch) error { return ctx.Err() }
	p := newProxy(kernel)
	p.Apply(manyMixedServices())
	if _, err := p.Sync(ctx); err == nil {
		t.Fatal("Sync returned no error after its context ended")
	}
	if objects := kernel.Tables.Objects(model.IPv4); !objects.Table || len(objects.Chains) > 0 {
		t.Errorf("the table exists: %v, with the chains %v; want it without chains", objects.Table, objects.Chains)
	}
}

// rejectingServices returns a function that makes a kernel reject the ClusterIPs of some Services.
func rejectingServices(everything model.Change, names ...model.ObjectName) func(ruleset.Batch) error {
	return func(batch ruleset.Batch) error {
		var rejections []ruleset.Rejection
		for _, op := range batch.Ops {
			object, isElements := op.Object.(ruleset.ElementsObject)
			if !isElements || object.Set.Name != ruleset.Services.Name {
				continue
			}
			for element := range object.Elements {
				for _, name := range names {
					if element.Key.Addr == everything.Services[name].ClusterIPs[0] {
						rejections = append(rejections, ruleset.Rejection{Op: op, Element: &element, Err: syscall.EINVAL})
					}
				}
			}
		}
		if len(rejections) == 0 {
			return nil
		}
		return &ruleset.RejectedError{Rejections: rejections}
	}
}

// TestAKernelRejectionInAPartExcludesItsOwnService, even if the kernel had no memory at first.
func TestAKernelRejectionInAPartExcludesItsOwnService(t *testing.T) {
	everything := manyMixedServices()
	names := []model.ObjectName{{Namespace: "default", Name: "service-7"}, {Namespace: "default", Name: "service-998"}}
	for _, noMemory := range []bool{false, true} {
		t.Run(fmt.Sprintf("no memory %v", noMemory), func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := newProxy(kernel)
			p.Apply(everything)
			if noMemory {
				batches := 0
				kernel.reject = func(ruleset.Batch) error {
					if batches++; batches == 1 {
						return nil
					}
					return syscall.ENOMEM
				}
				if _, err := p.Sync(t.Context()); !errors.Is(err, syscall.ENOMEM) {
					t.Fatalf("Sync: %v, want no memory", err)
				}
			}
			kernel.reject = rejectingServices(everything, names...)
			report := mustSync(t, p)
			if rejected := namesOf(report.Rejected); !slices.Equal(rejected, names) {
				t.Errorf("rejected Services %v, want %v", rejected, names)
			}
			// The first attempt leaves numbers of session affinity, which stay.
			want := &memoryKernel{numbers: numbersIn(&kernel.memoryKernel)}
			others := newProxy(want)
			others.Apply(withoutServices(everything, names))
			mustSync(t, others)
			if got := kernel.text(t); got != want.text(t) {
				t.Error("the tables differ from those of all other Services")
			}
		})
	}
}
