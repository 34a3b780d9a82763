package proxy_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// ordeal is a story on a kernel that fails at random, and from which another process takes things away at random.
type ordeal struct {
	*story
	t        testing.TB
	kernel   *memoryKernel
	inner    proxy.Kernel
	faults   *faultInjector
	versions *versions
	sabotage bool
	// sabotaged: something was taken away that the proxy may not know of. uncertain: a commit was done although it
	// failed.
	sabotaged, uncertain bool
	failed               int
	counted              counter
}

// newOrdeal returns an ordeal with tables in memory: inner itself, or tables that it keeps in parallel.
func newOrdeal(t testing.TB, seed uint64, memory *memoryKernel, inner proxy.Kernel, sabotage bool) *ordeal {
	o := &ordeal{t: t, kernel: memory, inner: inner, sabotage: sabotage, counted: counter{}}
	o.faults = &faultInjector{Kernel: inner, random: rand.New(rand.NewPCG(seed, 1)), counts: map[string]int{}}
	o.story = newStory(seed, memory, o.faults, o.counted)
	o.restart()
	o.versions = &versions{t: t, config: o.config, offered: map[offer]bool{}}
	o.faults.committed = func() {
		o.versions.allow(memory)
		if !o.sabotaged {
			expectBacked(t, memory)
		}
	}
	return o
}

// step makes a change and lets everything fail for some syncs. Then the faults end, and everything must be mended: the
// tables, and what a reader that only counts knows.
func (o *ordeal) step() {
	o.t.Helper()
	o.goOn()
	o.versions.add(o.everything)
	o.faults.percent.Store(50) // so that several in a row fail
	for range o.faults.random.IntN(6) {
		if o.faults.random.IntN(8) == 0 {
			o.restart()
		}
		if o.sabotage && o.faults.random.IntN(3) == 0 {
			o.takeAway()
		}
		o.sync()
	}
	o.faults.percent.Store(0)
	if o.sabotaged { // in the end the kernel reports that a notification was lost
		o.running.Distrust()
	}
	o.mend()
	o.sabotaged, o.uncertain = false, false
	o.convergesLike(o.t)
	fresh := counter{}
	late := proxy.New(self, o.config, &memoryKernel{}, fresh)
	late.Apply(o.everything)
	mustSync(o.t, late)
	if diff := cmp.Diff(fresh, o.counted); diff != "" {
		o.t.Fatalf("endpoints counted (-fresh start +after the history):\n%s", diff)
	}
}

// restart starts a new proxy, whose reader knows nothing yet.
func (o *ordeal) restart() {
	clear(o.counted)
	o.story.restart()
}

// mend syncs without faults. The first sync must succeed. Objects that no Service uses any more may take a second sync,
// if a commit that reported a failure had removed them.
func (o *ordeal) mend() {
	o.t.Helper()
	var unswept error
	for range 2 {
		report, err := o.running.Sync(o.t.Context())
		if err != nil {
			o.t.Fatalf("a sync without faults fails: %v", err)
		}
		if unswept = report.Unswept; unswept == nil {
			return
		}
	}
	o.t.Fatalf("a sweep without faults fails again and again: %v", unswept)
}

// sync syncs once, and checks that an error names a cause.
func (o *ordeal) sync() {
	o.t.Helper()
	o.faults.take()
	report, err := o.running.Sync(o.t.Context())
	injected := o.faults.take()
	if err = errors.Join(err, report.Unswept); err == nil {
		return
	}
	o.failed++
	o.uncertain = o.uncertain || slices.ContainsFunc(injected, isDone)
	caused := slices.ContainsFunc(injected, func(cause error) bool { return errors.Is(err, cause) })
	if !caused && !o.uncertain && !o.sabotaged { // which cause other errors
		o.t.Errorf("sync failed with %v, which none of %v caused", err, injected)
	}
}

func isDone(err error) bool {
	return slices.ContainsFunc(commitFaults, func(fault fault) bool { return fault.done && errors.Is(err, fault.err) })
}

// takeAway removes something from the tables. The proxy is notified of it, or not.
func (o *ordeal) takeAway() {
	o.t.Helper()
	batch := ruleset.Batch{Ops: o.removal()}
	if err := o.inner.Commit(context.Background(), batch); err != nil || len(batch.Ops) == 0 {
		return // it is in use, or there is nothing to take away
	}
	if o.faults.random.IntN(2) == 0 {
		o.running.Distrust()
	}
	o.sabotaged = true
}

// removal returns operations that remove an element, or what is in a set or a chain, or a set, a chain, or a table.
func (o *ordeal) removal() []ruleset.Op {
	random := o.faults.random
	family := o.config.Families[random.IntN(len(o.config.Families))]
	there := o.kernel.Tables.Objects(family)
	if !there.Table {
		return nil
	}
	of := func(verb ruleset.Verb, object ruleset.Object) ruleset.Op {
		return ruleset.Op{Verb: verb, Family: family, Object: object}
	}
	set := ruleset.StaticSets[random.IntN(len(ruleset.StaticSets))]
	chain := ruleset.ChainObject{Chain: ruleset.Chain{Name: there.Chains[random.IntN(len(there.Chains))]}}
	switch random.IntN(8) {
	case 0:
		return []ruleset.Op{of(ruleset.Delete, ruleset.TableObject{})}
	case 1:
		return []ruleset.Op{of(ruleset.Flush, ruleset.SetObject{Set: set})}
	case 2:
		return []ruleset.Op{of(ruleset.Delete, ruleset.SetObject{Set: set})}
	case 3:
		return []ruleset.Op{of(ruleset.Flush, chain)}
	case 4:
		return []ruleset.Op{of(ruleset.Flush, chain), of(ruleset.Delete, chain)}
	}
	elements, err := o.kernel.Tables.Elements(family, set)
	if err != nil || len(elements) == 0 {
		return nil
	}
	one := []ruleset.Element{elements[random.IntN(len(elements))]}
	return []ruleset.Op{of(ruleset.Delete, ruleset.ElementsObject{Set: set, Elements: slices.Values(one)})}
}

// TestAnyFaultsEndInTheTablesOfAFreshStart: whatever netlink does to a proxy, and whatever another process takes out of
// its tables, the first sync after that mends what connections see. Meanwhile every endpoint in force is one that some
// version of the cluster allowed. As long as no other process changes the tables, whatever is drawn leads somewhere.
func TestAnyFaultsEndInTheTablesOfAFreshStart(t *testing.T) {
	counts := map[string]int{}
	for name, sabotage := range map[string]bool{"netlink fails": false, "netlink fails and another process takes things away": true} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(48) {
				kernel := &memoryKernel{}
				o := newOrdeal(t, seed, kernel, kernel, sabotage)
				for range 12 {
					o.step()
				}
				if t.Failed() || o.failed == 0 {
					t.Fatalf("seed %d: %d syncs failed, and something is wrong", seed, o.failed)
				}
				for fault, count := range o.faults.counts {
					counts[fault] += count
				}
			}
		})
	}
	for _, fault := range slices.Concat(commitFaults, readFaults) {
		if counts[fault.name] == 0 {
			t.Errorf("%s: that never happened, so it was not tested", fault.name)
		}
	}
}

// TestFaultsEndInTheSameTablesOnTheRealKernel, which must agree with the one in memory all the time.
func TestFaultsEndInTheSameTablesOnTheRealKernel(t *testing.T) {
	for name, sabotage := range map[string]bool{"netlink fails": false, "netlink fails and another process takes things away": true} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			for seed := range uint64(len(configurations)) {
				kernel := newRealKernel(t)
				o := newOrdeal(t, seed, &kernel.memory, kernel, sabotage)
				for range 4 {
					o.step()
					kernel.agree(t)
				}
				if failed += o.failed; t.Failed() {
					t.Fatalf("that was seed %d", seed)
				}
			}
			if failed == 0 {
				t.Error("no sync failed, so nothing was tested")
			}
		})
	}
}

// listing returns what nft lists in a namespace, in a fixed order.
func listing(namespace *netns.Namespace) []string {
	return sortedListing(namespace.NFT("-n", "list", "ruleset"))
}

// onRealKernel returns a proxy in a namespace whose first sync of a cluster is done, and its connection.
func onRealKernel(t *testing.T, namespace *netns.Namespace, everything model.Change) (*proxy.Proxy, *nft.Conn) {
	t.Helper()
	conn := dialled(t, namespace)
	p := proxy.New(self, bothFamilies, conn)
	p.Apply(everything)
	mustSync(t, p)
	return p, conn
}

// dialled returns a connection to the nftables of a namespace.
func dialled(t *testing.T, namespace *netns.Namespace) *nft.Conn {
	t.Helper()
	var conn *nft.Conn
	var err error
	namespace.Do(func() { conn, err = nft.Dial(nft.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // a test may have closed it
	return conn
}

// TestARealCommitThatFailsLeavesTheTablesAsTheyAre, and the sync after it makes up for it: with the same connection if
// there was only a timeout, with a new one if the sockets were closed.
func TestARealCommitThatFailsLeavesTheTablesAsTheyAre(t *testing.T) {
	over, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	for name, test := range map[string]struct {
		ctx     context.Context
		closed  bool
		because string
	}{
		"the time is over":      {over, false, context.DeadlineExceeded.Error()},
		"the socket was closed": {t.Context(), true, "use of closed file"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, everything := netns.New(t), manyServices(3, 2).Then(resized(1))
			p, conn := onRealKernel(t, namespace, manyServices(3, 2))
			before := listing(namespace)
			if test.closed {
				if err := conn.Close(); err != nil {
					t.Fatal(err)
				}
			}
			p.Apply(resized(1))
			for range 3 { // the change, everything, and the tables anew
				if _, err := p.Sync(test.ctx); err == nil || !strings.Contains(err.Error(), test.because) {
					t.Fatalf("got error %v, want %q", err, test.because)
				}
			}
			if diff := cmp.Diff(before, listing(namespace)); diff != "" {
				t.Errorf("the tables changed:\n%s", diff)
			}
			if test.closed {
				onRealKernel(t, namespace, everything)
			} else {
				mustSync(t, p)
			}
			fresh := netns.New(t)
			onRealKernel(t, fresh, everything)
			if diff := cmp.Diff(listing(fresh), listing(namespace)); diff != "" {
				t.Errorf("tables (-fresh start +after the failures):\n%s", diff)
			}
		})
	}
}

// TestAnUnnoticedChangeIsRepairedByTheNextCommitThatFailsOnIt: without a notification the proxy does not know that an
// element is gone. It finds out when it changes that element, and then writes everything.
func TestAnUnnoticedChangeIsRepairedByTheNextCommitThatFailsOnIt(t *testing.T) {
	kernel := &memoryKernel{}
	p := synced(t, kernel)
	elements := elementsOf(t, kernel, model.IPv4, ruleset.Endpoints)
	for _, of := range []ruleset.Set{ruleset.Endpoints, ruleset.Services} {
		if err := kernel.Apply(ruleset.Batch{Ops: []ruleset.Op{
			{Verb: ruleset.Flush, Family: model.IPv4, Object: ruleset.SetObject{Set: of}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	p.Apply(model.Change{})
	mustSync(t, p)
	if now := elementsOf(t, kernel, model.IPv4, ruleset.Endpoints); len(elements) == 0 || len(now) > 0 {
		t.Errorf("there are %d endpoints, want none, as no notification came; there were %d", len(now), len(elements))
	}
	p.Apply(resized(1))
	if _, err := p.Sync(t.Context()); !errors.Is(err, ruleset.ErrNotExist) {
		t.Fatalf("got error %v, want %v", err, ruleset.ErrNotExist)
	}
	if report := mustSync(t, p); !report.Complete {
		t.Errorf("the next sync reports %+v, want it complete", report)
	}
	likeFreshStart(t, kernel, manyServices(3, 2).Then(resized(1)))
}
