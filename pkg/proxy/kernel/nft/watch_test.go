//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// watched is what Watch reports, in order.
type watched struct {
	t       *testing.T
	changes chan ExternalChange
}

func watch(t *testing.T, c *Conn) watched {
	t.Helper()
	w := watched{t: t, changes: make(chan ExternalChange, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Watch(ctx, func(change ExternalChange) { w.changes <- change }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	return w
}

// next returns the next report.
func (w watched) next() ExternalChange {
	w.t.Helper()
	return wait.Receive(w.t, "a reported change", w.changes)
}

// expectNothing checks that no change is reported. To be sure that every notification was read, it makes a change as
// another process and expects only that one.
func (w watched) expectNothing(namespace *netns.Namespace) {
	w.t.Helper()
	namespace.NFT("add", "chain", "ip", "vicinity", fmt.Sprintf("marker-%d", time.Now().UnixNano()))
	if got := w.next(); got.Process != "nft" || got.Overrun {
		w.t.Errorf("got %+v, want nothing before the marker", got)
	}
	select {
	case got := <-w.changes:
		w.t.Errorf("got %+v in addition to the marker", got)
	default:
	}
}

func TestExternalChangesAreReportedWithTheirProcess(t *testing.T) {
	for name, test := range map[string]struct {
		args     []string
		families []model.Family
	}{
		"a deleted element": {[]string{"delete", "element", "ip", "vicinity", "cluster-ips", "{ 10.96.0.1 }"}, []model.Family{model.IPv4}},
		"a flushed ruleset": {[]string{"flush", "ruleset"}, model.Families},
		"a flushed family":  {[]string{"flush", "ruleset", "ip6"}, []model.Family{model.IPv6}},
		"a deleted table":   {[]string{"delete", "table", "ip6", "vicinity"}, []model.Family{model.IPv6}},
		"a flushed chain":   {[]string{"flush", "chain", "ip", "vicinity", "services"}, []model.Family{model.IPv4}},
		"a flushed map":     {[]string{"flush", "map", "ip", "vicinity", "endpoints"}, []model.Family{model.IPv4}},
		"an added rule":     {[]string{"insert", "rule", "ip", "vicinity", "services", "accept"}, []model.Family{model.IPv4}},
		"an added set":      {[]string{"add", "set", "ip6", "vicinity", "s", "{ type mark; }"}, []model.Family{model.IPv6}},
		"a dormant table":   {[]string{"add", "table", "ip", "vicinity", "{ flags dormant; }"}, []model.Family{model.IPv4}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := netns.New(t)
			c := dial(t, namespace, Options{})
			for _, family := range model.Families {
				commit(t, c, everything(family))
			}
			w := watch(t, c)
			namespace.NFT(test.args...)
			got := w.next()
			if got.PID == 0 || got.Process != "nft" || got.Overrun || !cmp.Equal(test.families, got.Families) {
				t.Errorf("got %+v, want a process named nft and families %v", got, test.families)
			}
		})
	}
}

func TestAChangeBetweenDialAndWatchIsReportedToo(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, everything(model.IPv4))
	namespace.NFT("flush", "ruleset")
	if got := watch(t, c).next(); got.Process != "nft" {
		t.Errorf("got %+v, want the change that nft made", got)
	}
}

func TestOwnChangesAndOtherTablesAreNotReported(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	w := watch(t, c)
	commit(t, c, everything(model.IPv4))
	namespace.Load("table ip other { chain vicinity { }\n }\ntable inet vicinity { chain c { }\n }\n")
	for _, count := range []int{10, minUnobserved + 1, 20_000} {
		var o operations
		commit(t, c, o.do(ruleset.Flush, model.IPv4, ruleset.SetObject{Set: ruleset.Endpoints}).
			slots(ruleset.Add, count).Batch)
	}
	var rejected operations
	rejected.slots(ruleset.Delete, 30_000)
	if err := c.Commit(t.Context(), rejected.Batch); err == nil {
		t.Error("deleting absent elements was accepted")
	}
	w.expectNothing(namespace)
}

func TestAffinityElementsAreNotReported(t *testing.T) {
	namespace := netns.New(t)
	serve(t, namespace, model.IPv4)
	c := dial(t, namespace, Options{})
	commit(t, c, everythingWithAffinity(model.IPv4, time.Second))
	w := watch(t, c)
	connect(t, namespace, model.IPv4)
	if got := elementsOf(t, c, model.IPv4, affinity); len(got) != 1 {
		t.Fatalf("the affinity map holds %v, want the client", got)
	}
	time.Sleep(1200 * time.Millisecond)
	if got := elementsOf(t, c, model.IPv4, affinity); len(got) != 0 {
		t.Fatalf("the affinity map holds %v, want it to be empty", got)
	}
	w.expectNothing(namespace)
}

func TestAnExternalChangeDuringALargeBatchIsNotLost(t *testing.T) {
	errRejected := errors.New("rejected")
	for name, outcome := range map[string]error{"that is applied": nil, "that is rejected": errRejected} {
		t.Run(name, func(t *testing.T) {
			namespace := netns.New(t)
			c := dial(t, namespace, Options{})
			commit(t, c, everything(model.IPv4))
			w := watch(t, c)
			commitOwn := func() error {
				if outcome == nil {
					commit(t, c, new(operations).elements(ruleset.Add, model.IPv4, ruleset.Endpoints, slot(1, "10.244.0.3")).Batch)
				}
				return outcome
			}
			if err := c.sendUnobserved(t.Context(), commitOwn); !errors.Is(err, outcome) {
				t.Fatalf("got %v, want %v", err, outcome)
			}
			w.expectNothing(namespace)

			err := c.sendUnobserved(t.Context(), func() error {
				namespace.NFT("flush", "chain", "ip", "vicinity", "services")
				return errRejected
			})
			if !errors.Is(err, errRejected) {
				t.Fatalf("got %v, want the error of send", err)
			}
			if got := w.next(); !got.Overrun || !cmp.Equal(model.Families, got.Families) {
				t.Errorf("got %+v, want an overrun", got)
			}
			w.expectNothing(namespace)
		})
	}
}

func TestWhenNotificationsAreLostWatchReportsItAndContinues(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, everything(model.IPv4))
	// More than the buffer holds, while the watch does not read.
	namespace.Load("table ip other { set s { type ipv4_addr; elements = { " + manyAddresses(100_000) + " }\n }\n }\n")
	w := watch(t, c)
	if got := w.next(); !got.Overrun || !cmp.Equal(model.Families, got.Families) {
		t.Errorf("got %+v, want an overrun", got)
	}
	w.expectNothing(namespace)
}

func manyAddresses(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "10.%d.%d.%d, ", i>>16, i>>8&0xff, i&0xff)
	}
	return strings.TrimSuffix(text.String(), ", ")
}

func TestWatchingAnOwnedTableWaits(t *testing.T) {
	namespace := netns.New(t)
	c := dialOwned(t, namespace)
	commit(t, c, everything(model.IPv4))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	namespace.NFT("flush", "ruleset")
	if err := c.Watch(ctx, func(change ExternalChange) { t.Errorf("got %+v", change) }); err != nil || ctx.Err() == nil {
		t.Errorf("Watch returned %v before its context ended", err)
	}
}

func TestManyCommitsLeaveNothingBehind(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, everything(model.IPv4))
	watch(t, c)
	churn := func(times int) {
		for i := range times {
			element := slot(uint32(i%7)+10, "10.244.0.2")
			commit(t, c, new(operations).elements(ruleset.Add, model.IPv4, ruleset.Endpoints, element).Batch)
			commit(t, c, new(operations).elements(ruleset.Delete, model.IPv4, ruleset.Endpoints, element).Batch)
		}
	}
	churn(100)
	before := usageOf(t)
	churn(10_000)
	after := usageOf(t)
	if after.files > before.files || after.goroutines > before.goroutines+2 || after.heap > before.heap+1<<20 {
		t.Errorf("usage after 20,000 commits: %+v, before: %+v", after, before)
	}
}

type usage struct {
	files, goroutines int
	heap              uint64
}

func usageOf(t *testing.T) usage {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return usage{files: len(files), goroutines: runtime.NumGoroutine(), heap: memory.HeapAlloc}
}
