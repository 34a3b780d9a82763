package syncer

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// A sync is one transaction, and every change waits for it. So a sync that would change more than maxBatchWeight
// elements is split. Batches are filled fairly by namespace, so that one tenant's changes do not delay the others'. A
// Service that is larger than a batch is written in steps, together with small Services, with pauses as long as its
// steps take.

// maxBatchWeight is the approximate number of elements of the Services in one sync, which takes some 30 ms. A full sync
// has no such limit, because the content of the kernel's tables is unknown before it.
const maxBatchWeight = 8192

// queuedService is a Service that waits for a batch.
type queuedService struct {
	name     model.ObjectName
	sequence uint64 // by arrival
	weight   int    // about how many elements it has, or had
}

// isLarge reports whether a Service is more than one sync's work.
func (q queuedService) isLarge() bool { return q.weight > maxBatchWeight }

func (q queuedService) share() fair.Share {
	return fair.Share{Namespace: q.name.Namespace, Weight: q.weight}
}

// batch is the part of the queue that one sync processes.
type batch struct {
	selected  []model.ObjectName // sorted by name
	large     *model.ObjectName  // one of selected, if it is large
	remaining []queuedService
}

// pickBatch selects a batch: fairly by namespace, oldest Service first, up to maxBatchWeight; and one large Service,
// from the namespace whose last large Service was synced longest ago. If allowLarge is not set, large Services wait.
func pickBatch(all []queuedService, lastLarge map[string]uint64, allowLarge bool) batch {
	sum := 0
	for _, queued := range all {
		sum += queued.weight
	}
	var next batch
	if sum <= maxBatchWeight {
		for _, queued := range all {
			next.selected = append(next.selected, queued.name)
		}
		slices.SortFunc(next.selected, model.ObjectName.Compare)
		return next
	}
	slices.SortFunc(all, func(a, b queuedService) int { return cmp.Compare(a.sequence, b.sequence) })
	taken := pickSmall(all)
	if large := pickLarge(all, lastLarge); large != nil && allowLarge {
		next.large = &large.name
		taken[large.name] = true
	}
	for _, queued := range all {
		if !taken[queued.name] {
			next.remaining = append(next.remaining, queued)
		}
	}
	next.selected = slices.SortedFunc(maps.Keys(taken), model.ObjectName.Compare)
	return next
}

// pickSmall selects small Services fairly by namespace, up to maxBatchWeight, and at least one. The first Service of
// each namespace comes before the second of any, and the oldest Service comes first.
func pickSmall(all []queuedService) map[model.ObjectName]bool {
	small := slices.DeleteFunc(slices.Clone(all), queuedService.isLarge)
	taken, room := map[model.ObjectName]bool{}, maxBatchWeight
	for _, queued := range fair.Schedule(&fair.Queue{}, small, queuedService.share) {
		if room -= queued.weight; room < 0 && len(taken) > 0 {
			break
		}
		taken[queued.name] = true
	}
	return taken
}

// pickLarge returns the oldest large Service of the namespace whose last large Service was synced longest ago; nil
// means that there is none.
func pickLarge(all []queuedService, lastLarge map[string]uint64) *queuedService {
	var large *queuedService
	for i, queued := range all {
		if queued.isLarge() && (large == nil || lastLarge[queued.name.Namespace] < lastLarge[large.name.Namespace]) {
			large = &all[i]
		}
	}
	return large
}

// enqueue queues a Service that changed. Its weight is estimated now and not for each batch, because the queue may be
// long.
func (p *Proxy) enqueue(name model.ObjectName) {
	work := p.backlog.getOrAdd(name)
	if work.queueEntry.sequence == 0 {
		p.sequence++
		work.queueEntry = queuedService{name: name, sequence: p.sequence}
	}
	if p.mirror != nil {
		work.queueEntry.weight = p.estimateWeight(name)
	}
}

// estimateWeight returns the weight of a queued Service: its elements in the cluster or in the tables, whichever are
// more, and its plan.
func (p *Proxy) estimateWeight(name model.ObjectName) int {
	return 1 + max(selection.Weight(p.cluster, name), p.mirror.Service(name).Weight()) + p.planner.PlanWeight(name)
}

// replanInterval is the minimum time between two rounds of planning the Services with a load bound because other nodes
// or clients were added or removed: each such change affects all of them a little. A single change never waits.
const replanInterval = 10 * time.Second

// replanWeight is the approximate weight of plans that one sync recomputes, to check whether they changed: a thousand
// Services in a cluster of a few zones, some 4 µs each. Services whose slots changed are decided again.
const replanWeight = maxBatchWeight / 4

// replan checks the Services with new clients or new demand, at most once per replanInterval, and marks those whose
// plan changed. A large one is queued with the changed Services, because it is written in steps.
func (p *Proxy) replan(now time.Time) {
	if len(p.stale) == 0 && !now.Before(p.replanAfter) && p.cluster.HasStale() {
		p.replanAfter = now.Add(replanInterval)
		p.planner.Prune()
		p.stale = p.cluster.TakeStale()
	}
	for room := replanWeight; room > 0 && len(p.stale) > 0; p.stale = p.stale[1:] {
		name := p.stale[0]
		needsReplan, weight := p.planner.NeedsReplan(name)
		room -= weight
		if !needsReplan {
			continue
		}
		if p.estimateWeight(name) > maxBatchWeight {
			p.enqueue(name)
		} else {
			p.backlog.getOrAdd(name).needsReplan = true
		}
	}
}

// addReplanned adds Services that must be planned again, as many as fit into the batch.
func (p *Proxy) addReplanned(next *batch) {
	if next.large != nil || !p.backlog.isReplanning() {
		return
	}
	room := maxBatchWeight
	for _, name := range next.selected {
		room -= p.estimateWeight(name)
	}
	for name, work := range p.backlog.services {
		if !work.needsReplan {
			continue
		}
		if work.queueEntry.sequence > 0 {
			work.needsReplan = false // selected as a changed Service instead
			continue
		}
		if room -= p.estimateWeight(name); room < 0 && len(next.selected) > 0 {
			break
		}
		next.selected = append(next.selected, name)
	}
	slices.SortFunc(next.selected, model.ObjectName.Compare)
}

// nextBatch returns the work of the next sync.
func (p *Proxy) nextBatch(now time.Time) batch {
	p.replan(now)
	next := pickBatch(slices.Collect(p.backlog.waiting()), p.lastLarge, !now.Before(p.largeAfter))
	p.addReplanned(&next)
	p.largeWaits, p.smallWaits = false, false
	for _, queued := range next.remaining {
		p.largeWaits, p.smallWaits = p.largeWaits || queued.isLarge(), p.smallWaits || !queued.isLarge()
	}
	return next
}

// step replaces the decision about a large Service with its next step, and reports whether that is the last one.
func (p *Proxy) step(decided *decisions, name model.ObjectName) (last bool) {
	i := slices.IndexFunc(decided.owned, func(service ruleset.Service) bool { return service.Name == name })
	have := p.mirror.Service(name)
	if decided.owned[i], last = ruleset.NextStep(have, decided.owned[i], maxBatchWeight); !last {
		decided.keepApplied(have, decided.owned[i])
	}
	return last
}

// releaseFrontends adds decisions for waiting Services that lose a frontend to a Service that does not wait. The
// rest of them stays applied.
func (p *Proxy) releaseFrontends(decided *decisions, remaining []queuedService) {
	if len(remaining) == 0 || !p.gainsFrontend(decided) {
		return
	}
	owner := map[model.Frontend]model.ObjectName{}
	for _, queued := range remaining {
		for frontend := range p.mirror.Service(queued.name).Frontends() {
			owner[frontend] = queued.name
		}
	}
	previousOwners := map[model.ObjectName]bool{}
	for _, service := range decided.owned {
		for frontend := range service.Frontends() {
			if previousOwner, ok := owner[frontend]; ok {
				previousOwners[previousOwner] = true
			}
		}
	}
	for previousOwner := range previousOwners {
		have := p.mirror.Service(previousOwner)
		kept := p.stillOwned(have)
		decided.owned = append(decided.owned, kept)
		decided.keepApplied(have, kept)
	}
	slices.SortFunc(decided.owned, func(a, b ruleset.Service) int { return a.Name.Compare(b.Name) })
}

// gainsFrontend reports whether any decided Service gets a frontend that it did not have before.
func (p *Proxy) gainsFrontend(decided *decisions) bool {
	for _, service := range decided.owned {
		had := map[model.Frontend]bool{}
		for frontend := range p.mirror.Service(service.Name).Frontends() {
			had[frontend] = true
		}
		for frontend := range service.Frontends() {
			if !had[frontend] {
				return true
			}
		}
	}
	return false
}

// throttleLarge makes large Services wait for as long as the last one took, so that they get at most half of the time.
func (p *Proxy) throttleLarge(namespace string, now time.Time, took time.Duration) {
	p.largeAfter = now.Add(took)
	p.lastLarge[namespace] = p.sequence
	if !p.largeWaits {
		p.lastLarge = map[string]uint64{} // no large Service waits, so the order of namespaces does not matter
	}
}

// untilNextBatch returns the time until the next batch is due; false means that nothing waits.
func (p *Proxy) untilNextBatch(now time.Time) (time.Duration, bool) {
	if p.smallWaits || len(p.stale) > 0 || p.backlog.isReplanning() || p.mirror != nil && !p.mirror.IsClean() {
		return 0, true
	}
	next := time.Time{}
	if p.largeWaits {
		next = p.largeAfter
	}
	if p.cluster.HasStale() && (next.IsZero() || p.replanAfter.Before(next)) {
		next = p.replanAfter
	}
	return max(0, next.Sub(now)), p.largeWaits || p.cluster.HasStale()
}
