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

// Whose turn it is. A sync is one transaction, and every change waits for it. So a sync that would change more than
// turnWeight elements is split: namespaces take turns, so that one tenant's changes do not keep the others waiting; and
// a Service that is larger than that by itself takes its turn along with small ones, step by step, with pauses as long
// as its steps take.

// maxBatchWeight is about how many elements the Services of one sync have: some 30 ms. A complete sync has no such bound,
// because what the kernel holds before it is unknown.
const maxBatchWeight = 8192

// queuedService is a Service that waits for its turn.
type queuedService struct {
	name     model.ObjectName
	sequence uint64 // by arrival
	weight   int    // about how many elements it has, or had
}

// isLarge reports whether a Service is more than one sync's work.
func (w queuedService) isLarge() bool { return w.weight > maxBatchWeight }

func (w queuedService) share() fair.Share {
	return fair.Share{Namespace: w.name.Namespace, Weight: w.weight}
}

// batch is the part of what waits that one sync does.
type batch struct {
	selected  []model.ObjectName // by name
	large     *model.ObjectName  // one of those, if it is large
	remaining []queuedService
}

// pickBatch chooses: in each namespace the one that waits longest, until they weigh turnWeight; and one large Service, of
// the namespace that had that turn longest ago. Without allowLarge the large ones wait.
func pickBatch(all []queuedService, lastLarge map[string]uint64, allowLarge bool) batch {
	sum := 0
	for _, one := range all {
		sum += one.weight
	}
	var next batch
	if sum <= maxBatchWeight {
		for _, one := range all {
			next.selected = append(next.selected, one.name)
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
	for _, one := range all {
		if !taken[one.name] {
			next.remaining = append(next.remaining, one)
		}
	}
	next.selected = slices.SortedFunc(maps.Keys(taken), model.ObjectName.Compare)
	return next
}

// pickSmall takes the small ones in the turns of their namespaces, until they weigh turnWeight; at least one. Each
// namespace's first one comes before anybody's second, and the one that waits longest comes first of all.
func pickSmall(all []queuedService) map[model.ObjectName]bool {
	small := slices.DeleteFunc(slices.Clone(all), queuedService.isLarge)
	taken, room := map[model.ObjectName]bool{}, maxBatchWeight
	for _, one := range fair.Schedule(&fair.Queue{}, small, queuedService.share) {
		if room -= one.weight; room < 0 && len(taken) > 0 {
			break
		}
		taken[one.name] = true
	}
	return taken
}

// pickLarge returns the large Service that waits longest in the namespace that had a turn longest ago; nil if there is
// none.
func pickLarge(all []queuedService, lastLarge map[string]uint64) *queuedService {
	var large *queuedService
	for i, one := range all {
		if one.isLarge() && (large == nil || lastLarge[one.name.Namespace] < lastLarge[large.name.Namespace]) {
			large = &all[i]
		}
	}
	return large
}

// enqueue enters a Service that changed. It is weighed now and not at each turn, for very many may wait.
func (p *Proxy) enqueue(name model.ObjectName) {
	one := p.backlog.of(name)
	if one.waiting.sequence == 0 {
		p.sequence++
		one.waiting = queuedService{name: name, sequence: p.sequence}
	}
	if p.mirror != nil {
		one.waiting.weight = p.estimateWeight(name)
	}
}

// estimateWeight returns the weight of a Service that waits: what it has in the cluster or in the tables, whichever is more, and
// its plan.
func (p *Proxy) estimateWeight(name model.ObjectName) int {
	return 1 + max(selection.Weight(p.cluster, name), p.mirror.Service(name).Weight()) + p.planner.PlanWeight(name)
}

// replanInterval lies between two times at which the Services whose load is bounded are planned anew because other nodes
// came or went, or their clients did: each changes all of them, a little. A lone change never waits.
const replanInterval = 10 * time.Second

// replanWeight is about how much is planned anew in one sync, to see whether it makes a difference: a thousand Services
// in a cluster of a few zones, some 4 us each. Those whose slots come out different are decided anew.
const replanWeight = maxBatchWeight / 4

// replan takes up the Services with new clients or new demand, unless that was done a moment ago, and looks for those
// for which it makes a difference. A large one waits with those that changed, for it is written in steps.
func (p *Proxy) replan(now time.Time) {
	if len(p.stale) == 0 && !now.Before(p.replanAfter) && p.cluster.HasStale() {
		p.replanAfter = now.Add(replanInterval)
		p.planner.Prune()
		p.stale = p.cluster.TakeStale()
	}
	for room := replanWeight; room > 0 && len(p.stale) > 0; p.stale = p.stale[1:] {
		name := p.stale[0]
		differs, weight := p.planner.NeedsReplan(name)
		room -= weight
		if !differs {
			continue
		}
		if p.estimateWeight(name) > maxBatchWeight {
			p.enqueue(name)
		} else {
			p.backlog.of(name).replanned = true
		}
	}
}

// addReplanned adds Services that must be planned anew, as many as fit with those that changed.
func (p *Proxy) addReplanned(next *batch) {
	if next.large != nil || !p.backlog.isReplanning() {
		return
	}
	room := maxBatchWeight
	for _, name := range next.selected {
		room -= p.estimateWeight(name)
	}
	for name, one := range p.backlog.services {
		if !one.replanned {
			continue
		}
		if one.waiting.sequence > 0 {
			one.replanned = false // has its turn as one that changed
			continue
		}
		if room -= p.estimateWeight(name); room < 0 && len(next.selected) > 0 {
			break
		}
		next.selected = append(next.selected, name)
	}
	slices.SortFunc(next.selected, model.ObjectName.Compare)
}

// nextBatch chooses what the next sync does.
func (p *Proxy) nextBatch(now time.Time) batch {
	p.replan(now)
	next := pickBatch(slices.Collect(p.backlog.waiting()), p.lastLarge, !now.Before(p.largeAfter))
	p.addReplanned(&next)
	p.largeWaits, p.smallWaits = false, false
	for _, one := range next.remaining {
		p.largeWaits, p.smallWaits = p.largeWaits || one.isLarge(), p.smallWaits || !one.isLarge()
	}
	return next
}

// step puts a step in place of a decision about a large Service, and reports whether it is the last.
func (p *Proxy) step(decided *decisions, name model.ObjectName) (last bool) {
	i := slices.IndexFunc(decided.owned, func(service ruleset.Service) bool { return service.Name == name })
	have := p.mirror.Service(name)
	if decided.owned[i], last = ruleset.NextStep(have, decided.owned[i], maxBatchWeight); !last {
		decided.keepApplied(have, decided.owned[i])
	}
	return last
}

// releaseFrontends adds waiting Services that lose a frontend to a Service that does not wait: without the frontend, but otherwise
// unchanged.
func (p *Proxy) releaseFrontends(decided *decisions, rest []queuedService) {
	if len(rest) == 0 || !p.gainsFrontend(decided) {
		return
	}
	owner := map[model.Frontend]model.ObjectName{}
	for _, one := range rest {
		for frontend := range p.mirror.Service(one.name).Frontends() {
			owner[frontend] = one.name
		}
	}
	losers := map[model.ObjectName]bool{}
	for _, service := range decided.owned {
		for frontend := range service.Frontends() {
			if loser, ok := owner[frontend]; ok {
				losers[loser] = true
			}
		}
	}
	for loser := range losers {
		have := p.mirror.Service(loser)
		left := p.stillOwned(have)
		decided.owned = append(decided.owned, left)
		decided.keepApplied(have, left)
	}
	slices.SortFunc(decided.owned, func(a, b ruleset.Service) int { return a.Name.Compare(b.Name) })
}

// gainsFrontend reports whether a Service has a frontend that it did not have before.
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

// throttleLarge has large Services wait for as long as one took, so that they have half of the time at most.
func (p *Proxy) throttleLarge(namespace string, now time.Time, took time.Duration) {
	p.largeAfter = now.Add(took)
	p.lastLarge[namespace] = p.sequence
	if !p.largeWaits {
		p.lastLarge = map[string]uint64{} // no Service waits that could have had a turn
	}
}

// untilNextBatch returns how long it is until what waits has its turn; false if nothing waits.
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
