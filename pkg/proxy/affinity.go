package proxy

import (
	"context"
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// withoutStale returns the plan's batch, extended so that clients are forgotten whose endpoint leaves with it.
func (p *Proxy) withoutStale(ctx context.Context, plan *ruleset.Plan) (ruleset.Batch, error) {
	stale, err := p.staleElements(ctx, plan.Left)
	if err != nil || len(stale.Ops) == 0 {
		return plan.Batch, err
	}
	return ruleset.Batch{Ops: append(slices.Clone(plan.Batch.Ops), stale.Ops...)}, nil
}

// staleElements returns the batch that forgets the clients which would still be sent to an endpoint that is no longer used.
//
// Each element is added before it is deleted, because it may expire between reading and deleting, and deleting what is not
// there would fail the whole batch. Adding an identical element that is there does nothing. (Kernel 6.3 has an operation that
// does both; this works on all.)
func (p *Proxy) staleElements(ctx context.Context, affinities []ruleset.AffinityMap) (ruleset.Batch, error) {
	var batch ruleset.Batch
	for _, affinity := range affinities {
		elements, err := p.kernel.Elements(ctx, affinity.Family, affinity.Set)
		if err != nil {
			return ruleset.Batch{}, fmt.Errorf("read the clients in %s: %w", affinity.Set.Name, err)
		}
		stale := slices.DeleteFunc(elements, affinity.Allows)
		if len(stale) == 0 {
			continue
		}
		for _, verb := range []ruleset.Verb{ruleset.Add, ruleset.Delete} {
			batch.Ops = append(batch.Ops, ruleset.Op{Verb: verb, Family: affinity.Family, Object: ruleset.ElementsObject{
				Set: affinity.Set, Elements: slices.Values(stale),
			}})
		}
	}
	return batch, nil
}
