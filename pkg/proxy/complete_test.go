package proxy_test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// many are more Services than one part of a first sync has.
func many() model.Change { return motley(1100) }

// atOnce returns what the tables hold, and how much was written, after a first sync over an empty table: that is one
// transaction.
func atOnce(t *testing.T, everything model.Change) (kernel *memoryKernel, written map[model.Family]int) {
	t.Helper()
	kernel = &memoryKernel{}
	for _, family := range model.Families {
		table := ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Family: family, Object: ruleset.TableObject{}}}}
		if err := kernel.Apply(table); err != nil {
			t.Fatal(err)
		}
	}
	p := starting(kernel)
	p.Apply(everything)
	report := mustSync(t, p)
	if len(kernel.batches) != 1 {
		t.Fatalf("over a table %d batches were written, want 1", len(kernel.batches))
	}
	return kernel, report.Added
}

func hasChains(batch ruleset.Batch) bool {
	return slices.ContainsFunc(batch.Ops, func(op ruleset.Op) bool {
		_, isChain := op.Object.(ruleset.ChainObject)
		return isChain
	})
}

// TestAFirstSyncWritesChainsLast: before there are any no packet is led to elements, so that these may come in parts.
func TestAFirstSyncWritesChainsLast(t *testing.T) {
	everything := many()
	want, written := atOnce(t, everything)
	kernel := &memoryKernel{}
	p := starting(kernel)
	p.Apply(everything)
	report := mustSync(t, p)
	if got := kernel.text(t); got != want.text(t) {
		t.Error("the tables are other ones than those that one transaction makes")
	}
	if fmt.Sprint(report.Added) != fmt.Sprint(written) {
		t.Errorf("the report says that %v elements were added, want %v", report.Added, written)
	}
	last := len(kernel.batches) - 1
	if last != 2 {
		t.Fatalf("%d batches were written, want 3", last+1)
	}
	ahead, behind := 0, 0
	for i, batch := range kernel.batches {
		if hasChains(batch) != (i == last) {
			t.Errorf("batch %d of %d has chains: %v", i+1, last+1, i != last)
		}
		for _, family := range model.Families {
			if count := batch.Count(family, ruleset.Add); i == last {
				behind += count
			} else {
				ahead += count
			}
		}
	}
	if behind*2 > ahead {
		t.Errorf("%d elements were written with the chains, and %d before", behind, ahead)
	}
}

// TestAFirstSyncThatFailsInAnyPartIsDoneAtOnce, in the same sync.
func TestAFirstSyncThatFailsInAnyPartIsDoneAtOnce(t *testing.T) {
	everything := many()
	want, written := atOnce(t, everything)
	for _, done := range []bool{false, true} {
		for failing := range 2 {
			t.Run(fmt.Sprintf("part %d, done %v", failing+1, done), func(t *testing.T) {
				commits := 0
				kernel := &faultyKernel{memoryKernel: &memoryKernel{}, fails: func() (before, after bool) {
					commits++
					return commits == failing+1 && !done, commits == failing+1 && done
				}}
				p := starting(kernel)
				p.Apply(everything)
				report := mustSync(t, p)
				if got := kernel.text(t); got != want.text(t) {
					t.Error("the tables are other ones than those that one transaction makes")
				}
				// Of a complete sync's two the first is empty.
				if want := failing + 1 + 2; commits != want {
					t.Errorf("%d commits, want %d: nothing more is written ahead after a failure", commits, want)
				}
				if fmt.Sprint(report.Added) != fmt.Sprint(written) {
					t.Errorf("the report says that %v elements were added, want %v", report.Added, written)
				}
			})
		}
	}
}

// TestAFirstSyncThatFailsAltogetherIsTriedAgain, and makes the tables of one that succeeds.
func TestAFirstSyncThatFailsAltogetherIsTriedAgain(t *testing.T) {
	everything := many()
	want, _ := atOnce(t, everything)
	for _, after := range []bool{false, true} {
		broken := true
		kernel := &faultyKernel{memoryKernel: &memoryKernel{}, fails: func() (bool, bool) { return broken && !after, broken && after }}
		p := starting(kernel)
		p.Apply(everything)
		if _, err := p.Sync(t.Context()); err == nil {
			t.Fatal("Sync succeeds, though the kernel does nothing")
		}
		broken = false
		mustSync(t, p)
		if got := kernel.text(t); got != want.text(t) {
			t.Error("the tables are other ones than those that one transaction makes")
		}
	}
}

// TestAFirstSyncThatIsEndedLeavesNoChains: what it wrote leads nobody anywhere.
func TestAFirstSyncThatIsEndedLeavesNoChains(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	kernel := &scriptedKernel{committed: func(ruleset.Batch) { cancel() }}
	kernel.refuse = func(ruleset.Batch) error { return ctx.Err() }
	p := starting(kernel)
	p.Apply(many())
	if _, err := p.Sync(ctx); err == nil {
		t.Fatal("Sync succeeds, though its context has ended")
	}
	if objects := kernel.Tables.Objects(model.IPv4); !objects.Table || len(objects.Chains) > 0 {
		t.Errorf("the table is there: %v, with the chains %v; want it without any", objects.Table, objects.Chains)
	}
}

// TestWhatTheKernelRefusesAheadTakesItsOwnServiceOut: as in one transaction.
func TestWhatTheKernelRefusesAheadTakesItsOwnServiceOut(t *testing.T) {
	everything := many()
	name := model.ObjectName{Namespace: "default", Name: "service-7"}
	want, _ := atOnce(t, withoutServices(everything, []model.ObjectName{name}))
	address := everything.Services[name].ClusterIPs[0]
	kernel := &scriptedKernel{refuse: func(batch ruleset.Batch) error {
		for _, op := range batch.Ops {
			object, isElements := op.Object.(ruleset.ElementsObject)
			if !isElements || object.Set.Name != ruleset.Services.Name {
				continue
			}
			for element := range object.Elements {
				if element.Key.Addr == address {
					return &ruleset.RefusedError{Refusals: []ruleset.Refusal{{Op: op, Element: &element, Err: syscall.EINVAL}}}
				}
			}
		}
		return nil
	}}
	p := starting(kernel)
	p.Apply(everything)
	report := mustSync(t, p)
	if refused := namesOf(report.Refused); !slices.Equal(refused, []model.ObjectName{name}) {
		t.Errorf("refused are %v, want %v", refused, name)
	}
	if got := kernel.text(t); got != want.text(t) {
		t.Error("the tables are other ones than those of all other Services")
	}
}
