package syncer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// listing returns nft's listing of a namespace, in a fixed order.
func listing(namespace *netns.Namespace) []string {
	return sortedListing(namespace.NFT("-n", "list", "ruleset"))
}

// onRealKernel returns a proxy that has synced a cluster in a namespace, and its connection.
func onRealKernel(t *testing.T, namespace *netns.Namespace, everything model.Change) (*syncer.Proxy, *nft.Conn) {
	t.Helper()
	conn := dialNFT(t, namespace)
	p := syncer.New(self, bothFamilies, conn)
	p.Apply(everything)
	mustSync(t, p)
	return p, conn
}

// dialNFT returns a connection to the nftables of a namespace.
func dialNFT(t *testing.T, namespace *netns.Namespace) *nft.Conn {
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

// TestARealCommitThatFailsChangesNothing, and the next sync applies the change: with the same connection after a
// timeout, with a new one if the sockets were closed.
func TestARealCommitThatFailsChangesNothing(t *testing.T) {
	expired, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	for name, test := range map[string]struct {
		ctx     context.Context
		closed  bool
		because string
	}{
		"the deadline is exceeded": {expired, false, context.DeadlineExceeded.Error()},
		"the socket was closed":    {t.Context(), true, "use of closed file"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, everything := netns.New(t), manyServices(3, 2).Merge(resized(1))
			p, conn := onRealKernel(t, namespace, manyServices(3, 2))
			before := listing(namespace)
			if test.closed {
				if err := conn.Close(); err != nil {
					t.Fatal(err)
				}
			}
			p.Apply(resized(1))
			for range 3 { // a partial sync, a full one, and one that recreates the tables
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
// element is gone. The error of a change of that element causes a full sync.
func TestAnUnnoticedChangeIsRepairedByTheNextCommitThatFailsOnIt(t *testing.T) {
	kernel := &memoryKernel{}
	p := newSyncedProxy(t, kernel)
	elements := elementsOf(t, kernel, model.IPv4, ruleset.Endpoints)
	for _, set := range []ruleset.Set{ruleset.Endpoints, ruleset.Services} {
		if err := kernel.Apply(ruleset.Batch{Ops: []ruleset.Op{
			{Verb: ruleset.Flush, Family: model.IPv4, Object: ruleset.SetObject{Set: set}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	p.Apply(model.Change{})
	mustSync(t, p)
	if now := elementsOf(t, kernel, model.IPv4, ruleset.Endpoints); len(elements) == 0 || len(now) > 0 {
		t.Errorf("there are %d endpoints, want none, because no notification arrived; there were %d before", len(now), len(elements))
	}
	p.Apply(resized(1))
	if _, err := p.Sync(t.Context()); !errors.Is(err, ruleset.ErrNotExist) {
		t.Fatalf("got error %v, want %v", err, ruleset.ErrNotExist)
	}
	if report := mustSync(t, p); !report.Full {
		t.Errorf("the next sync reports %+v, want a full one", report)
	}
	checkLikeFreshStart(t, kernel, manyServices(3, 2).Merge(resized(1)))
}
