package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// commitForgetting commits a batch, and in the same transaction forgets the clients which the affinity maps would
// still send to an endpoint that is no longer used.
//
// Clients are forgotten one by one, so that all others keep their endpoint. A busy Service can make that fail: its
// clients come and expire between the look into its map and the commit. Then its map is emptied instead, which needs
// nothing to be there. It costs the clients of this one Service their endpoint, and other clients nothing.
func (p *Proxy) commitForgetting(ctx context.Context, batch ruleset.Batch, affinities []ruleset.AffinityMap) error {
	forget, err := p.staleClients(ctx, affinities)
	if err == nil {
		err = p.kernel.Commit(ctx, ruleset.Batch{Ops: slices.Concat(batch.Ops, forget.Ops)})
		if err == nil || len(forget.Ops) == 0 {
			return err
		}
	}
	if ctx.Err() != nil {
		return err
	}
	if second := p.kernel.Commit(ctx, ruleset.Batch{Ops: slices.Concat(batch.Ops, emptied(affinities).Ops)}); second != nil {
		return errors.Join(err, second)
	}
	return nil
}

// staleClients returns the batch that forgets single clients.
//
// Each is added before it is deleted, because it may expire before the commit, and deleting what is not there fails
// the whole batch. Adding an identical element that is there does nothing. (Kernel 6.3 has an operation that does
// both.)
func (p *Proxy) staleClients(ctx context.Context, affinities []ruleset.AffinityMap) (ruleset.Batch, error) {
	var batch ruleset.Batch
	for _, affinity := range affinities {
		elements, err := p.kernel.Elements(ctx, affinity.Family, affinity.Set)
		if err != nil {
			return ruleset.Batch{}, fmt.Errorf("read the clients in %s: %w", affinity.Set.Name, err)
		}
		used := make(map[netip.Addr]bool, len(affinity.Endpoints))
		for _, endpoint := range affinity.Endpoints {
			used[endpoint] = true
		}
		stale := slices.DeleteFunc(elements, func(element ruleset.Element) bool { return used[element.Value.Addr] })
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

// emptied returns the batch that forgets all clients.
func emptied(affinities []ruleset.AffinityMap) ruleset.Batch {
	var batch ruleset.Batch
	for _, affinity := range affinities {
		batch.Ops = append(batch.Ops, ruleset.Op{
			Verb: ruleset.Flush, Family: affinity.Family, Object: ruleset.SetObject{Set: affinity.Set},
		})
	}
	return batch
}
