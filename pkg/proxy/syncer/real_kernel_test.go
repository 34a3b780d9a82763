package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// realKernel is a namespace's nftables together with a model in memory. Both get the same batches and must have the
// same tables.
type realKernel struct {
	t         testing.TB
	namespace *netns.Namespace
	scratch   *netns.Namespace // for expectSameListing
	conn      *nft.Conn
	model     memoryKernel
}

func newRealKernel(t testing.TB) *realKernel {
	kernel := &realKernel{t: t, namespace: netns.New(t), scratch: netns.New(t)}
	kernel.dial()
	t.Cleanup(func() { _ = kernel.conn.Close() })
	return kernel
}

func (k *realKernel) dial() {
	k.namespace.Do(func() {
		conn, err := nft.Dial(nft.Options{})
		if err != nil {
			k.t.Fatalf("dial nftables: %v", err)
		}
		k.conn = conn
	})
}

func (k *realKernel) Commit(ctx context.Context, batch ruleset.Batch) error {
	realErr, memoryErr := k.conn.Commit(ctx, batch), k.model.Commit(ctx, batch)
	if (realErr == nil) != (memoryErr == nil) {
		k.t.Errorf("the kernel returns %v for a batch, the kernel in memory %v", realErr, memoryErr)
	}
	return realErr
}

func (k *realKernel) Objects(ctx context.Context, family model.Family) (ruleset.Objects, error) {
	objects, err := k.conn.Objects(ctx, family)
	want, _ := k.model.Objects(ctx, family)
	ignoreOrder := cmpopts.SortSlices(func(a, b ruleset.Element) bool {
		return strings.Compare(fmt.Sprint(a.Key), fmt.Sprint(b.Key)) < 0
	})
	equal := cmpopts.EquateComparable(netip.Addr{})
	if diff := cmp.Diff(want, objects, ignoreOrder, equal, cmpopts.EquateEmpty()); err == nil && diff != "" {
		k.t.Errorf("objects of the %s table (-memory +kernel):\n%s", family, diff)
	}
	return objects, err
}

// expectSameListing checks that `nft list ruleset` shows the same for the kernel's tables and for the tables of the
// in-memory model, loaded into an empty namespace. nft is an independent implementation.
func (k *realKernel) expectSameListing(t testing.TB) {
	t.Helper()
	k.scratch.Load("flush ruleset\n" + k.model.text(t))
	want := sortedListing(k.scratch.NFT("-n", "list", "ruleset"))
	got := sortedListing(k.namespace.NFT("-n", "list", "ruleset"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nft list ruleset (-in-memory model, +kernel):\n%s", diff)
	}
}

// sortedListing makes two listings comparable: nft lists sets and chains in the order of their creation, and elements
// in the order of a hash table.
func sortedListing(listing string) []string {
	var blocks []string
	for _, table := range strings.SplitAfter(listing, "\n}\n") {
		name, objects, _ := strings.Cut(table, "\n")
		for block := range strings.SplitSeq(strings.TrimSuffix(objects, "}\n"), "\n\n") {
			blocks = append(blocks, name+"\n"+strings.TrimSpace(sortedElements(block)))
		}
	}
	return slices.Sorted(slices.Values(blocks))
}

func sortedElements(block string) string {
	before, elements, found := strings.Cut(block, "elements = { ")
	if !found {
		return block
	}
	elements, _, _ = strings.Cut(elements, " }\n")
	list := strings.Split(elements, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	slices.Sort(list)
	return before + strings.Join(list, "\n")
}

// TestAProxyTakesOverTheTablesOfALingeringPredecessor: a killed proxy may own its tables for a while after the next
// one has started. The tables must be kept, not recreated: they hold the clients' affinity entries.
func TestAProxyTakesOverTheTablesOfALingeringPredecessor(t *testing.T) {
	namespace := netns.New(t)
	dial := func() (conn *nft.Conn) {
		namespace.Do(func() {
			var err error
			conn, err = nft.Dial(nft.Options{Owned: true})
			must.Succeed(t, err)
		})
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	tables := func() []string {
		listing := strings.Split(namespace.NFT("-a", "list", "ruleset"), "\n")
		return slices.DeleteFunc(listing, func(line string) bool { return !strings.HasPrefix(line, "table ") })
	}
	predecessor := dial()
	p := newProxy(predecessor)
	p.Apply(stickyService(1, 2))
	mustSync(t, p)
	before := tables()
	if len(before) == 0 || !strings.Contains(before[0], "# handle ") {
		t.Fatalf("the tables are %q", before)
	}

	p = newProxy(dial())
	p.Apply(stickyService(1, 2))
	for range 5 {
		_, err := p.Sync(t.Context())
		if _, owned := errors.AsType[*nft.TableOwnedError](err); !owned {
			t.Fatalf("while the predecessor owns the tables, a sync returns %v", err)
		}
	}
	must.Succeed(t, predecessor.Close())
	mustSync(t, p)
	if diff := cmp.Diff(before, tables()); diff != "" {
		t.Errorf("tables (-of the predecessor, +now):\n%s", diff)
	}
}
