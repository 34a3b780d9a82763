//go:build linux

package nft

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

func TestABatchWithOneBadOperationChangesNothing(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, everything(model.IPv4))
	before := namespace.NFT("list", "ruleset")

	var o operations
	o.do(ruleset.Flush, model.IPv4, ruleset.ChainObject{Chain: ruleset.Chain{Name: "services"}}).
		do(ruleset.Flush, model.IPv4, ruleset.SetObject{Set: ruleset.Endpoints}).
		slots(ruleset.Add, 5000).
		do(ruleset.Add, model.IPv6, ruleset.TableObject{}).
		do(ruleset.Delete, model.IPv4, ruleset.SetObject{Set: ruleset.Set{Name: "absent"}})
	if err := c.Commit(t.Context(), o.Batch); !errors.Is(err, unix.ENOENT) {
		t.Fatalf("deleting an absent set gave %v, want ENOENT", err)
	}

	if diff := cmp.Diff(before, namespace.NFT("list", "ruleset")); diff != "" {
		t.Errorf("the rejected batch changed something:\n%s", diff)
	}
}

func TestBatchesOfEverySizeAreComplete(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, emptyMaps(model.IPv4, ruleset.Endpoints))
	// An element has 44 bytes, a message takes 64,000. The nftables library (not used here) loses batches of 212,924 to
	// 212,988 bytes, just below the default size of a socket's buffer: 4838 and 4839 elements.
	for _, count := range []int{0, 1, 2, 1450, 1451, 1452, 1453, 1454, 1455, 4836, 4837, 4838, 4839, 4840, 4841} {
		var o operations
		o.do(ruleset.Flush, model.IPv4, ruleset.SetObject{Set: ruleset.Endpoints}).
			slots(ruleset.Add, count)
		commit(t, c, o.Batch)
		if got := len(elementsOf(t, c, model.IPv4, ruleset.Endpoints)); got != count {
			t.Errorf("after a batch with %d elements the kernel has %d", count, got)
		}
	}
}

func TestAHundredThousandElementsAreAddedInOneBatchAndDeletedInAnother(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	const count = 100_000
	batch := operations{emptyMaps(model.IPv4, ruleset.Endpoints)}
	batch.slots(ruleset.Add, count)
	commit(t, c, batch.Batch)
	want := map[ruleset.Element]bool{}
	for element := range slots(count) {
		want[element] = true
	}
	for _, element := range elementsOf(t, c, model.IPv4, ruleset.Endpoints) {
		delete(want, element)
	}
	if len(want) > 0 {
		t.Errorf("%d of %d elements are missing or wrong", len(want), count)
	}

	var remove operations
	commit(t, c, remove.slots(ruleset.Delete, count).Batch)
	if got := elementsOf(t, c, model.IPv4, ruleset.Endpoints); len(got) != 0 {
		t.Errorf("%d elements are left of those that were deleted", len(got))
	}
}

func TestAnEncodedBatchCanBeSentAgain(t *testing.T) {
	c := dial(t, netns.New(t), Options{})
	commit(t, c, emptyMaps(model.IPv4, ruleset.Endpoints))
	var o operations
	o.do(ruleset.Flush, model.IPv4, ruleset.SetObject{Set: ruleset.Endpoints}).
		slots(ruleset.Add, 3000)
	encoded, err := c.Encode(o.Batch)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Send(t.Context(), encoded); err != nil {
			t.Fatalf("send batch: %v", err)
		}
	}
	if got := len(elementsOf(t, c, model.IPv4, ruleset.Endpoints)); got != 3000 {
		t.Errorf("%d elements are in the kernel, want 3000", got)
	}
	if encoded.Size() < 3000*44 {
		t.Errorf("the batch has %d bytes, want at least 44 for each element", encoded.Size())
	}
}

func TestAnEmptyBatchDoesNothing(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, ruleset.Batch{})
	var o operations
	commit(t, c, o.elements(ruleset.Add, model.IPv4, ruleset.Endpoints).Batch)
	if got := namespace.NFT("list", "ruleset"); got != "" {
		t.Errorf("nft lists %q, want nothing", got)
	}
}

func TestACancelledContextStopsABatchBeforeItIsSent(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Commit(ctx, everything(model.IPv4)); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit gave %v, want context.Canceled", err)
	}
	if got := namespace.NFT("list", "ruleset"); got != "" {
		t.Errorf("nft lists %q, want nothing", got)
	}
}

// slot returns an element such as 10.96.0.1 . tcp . 80 . fd00:1.
func slot(number uint32, endpoint string) ruleset.Element {
	addrs := addressesOf(model.IPv4)
	return ruleset.Element{
		Key:   ruleset.Tuple{Addr: addrs.service, Proto: model.TCP, Port: 80, Number: ruleset.ClusterSlot + number},
		Value: ruleset.Tuple{Addr: netip.MustParseAddr(endpoint), Port: 8080},
	}
}

func TestAnElementCostsNoAllocation(t *testing.T) {
	for name, element := range map[string]filled{
		"an endpoint": {ruleset.Endpoints, []ruleset.Element{slot(0, "10.244.0.2")}},
		"a range":     {ruleset.Sources, []ruleset.Element{rangeElement(addressesOf(model.IPv4).allowedRange)}},
	} {
		var o operations
		o.elements(ruleset.Add, model.IPv4, element.set, slices.Repeat(element.elements, 10_000)...)
		buffer := make([]byte, 0, 4<<20)
		allocations := testing.AllocsPerRun(3, func() {
			if _, err := encode(o.Batch, false, 1, buffer, false); err != nil {
				t.Fatal(err)
			}
		})
		if allocations > 20 {
			t.Errorf("encoding %s 10,000 times allocates %.0f times", name, allocations)
		}
	}
}
