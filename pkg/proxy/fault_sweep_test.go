package proxy_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// unsureOfSweeps is a kernel that does every sweep of chains and sets, but reports the first one as failed.
type unsureOfSweeps struct {
	*scriptedKernel
	said bool
}

func (k *unsureOfSweeps) Commit(ctx context.Context, batch ruleset.Batch) error {
	err := k.scriptedKernel.Commit(ctx, batch)
	if err == nil && !k.said && refuseSweeps(batch) != nil {
		k.said = true
		return errInjected
	}
	return err
}

// TestASweepThatWasDoneThoughItFailedCostsNoClientItsEndpoint: what it should remove is gone, so the next sweep fails.
// The tables are not made anew for that, which would forget all clients.
func TestASweepThatWasDoneThoughItFailedCostsNoClientItsEndpoint(t *testing.T) {
	kernel := &unsureOfSweeps{scriptedKernel: &scriptedKernel{}}
	p := starting(kernel)
	everything := manyServices(3, manyEndpoints+1).Then(stickyService(1, 2, 3))
	p.Apply(everything)
	mustSync(t, p)
	clients := []string{"1:1", "2:2"}
	kernel.remember(t, 1, 1)
	kernel.remember(t, 2, 2)
	p.Apply(manyServices(3, manyEndpoints)) // now no Service needs the chain for one more slot
	report, err := p.Sync(t.Context())
	if err != nil || report.Unswept == nil {
		t.Fatalf("got report %+v and error %v, want something unswept", report, err)
	}
	syncs := 0
	for ; report.Unswept != nil && syncs < 4; syncs++ {
		if report, err = p.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if syncs != 2 || slices.ContainsFunc(kernel.batches, rebuilds) {
		t.Errorf("it took %d syncs more, want 2, and no table may be made anew", syncs)
	}
	if diff := cmp.Diff(clients, kernel.remembered(t)); diff != "" {
		t.Errorf("clients and their endpoints (-want +got):\n%s", diff)
	}
	likeFreshStart(t, &kernel.memoryKernel, everything.Then(manyServices(3, manyEndpoints)))
}
