package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// A complete sync is one transaction, for it changes tables that packets go through. Where there are none yet, no packet
// goes anywhere before there are chains, and those come last. So the elements are written ahead, in parts: while the
// kernel takes one, the next Services are decided. With 10,000 Services of ten endpoints a first sync takes 200 ms, and
// in one transaction 300, of which the kernel has 172: parts are small enough to use the same memory again, in the
// kernel and here.

// aheadServices is how many Services are written ahead at once.
const aheadServices = 1024

func (p *Proxy) syncAll(ctx context.Context, config ruleset.Config) (Report, error) {
	found, err := p.found(ctx)
	if err != nil {
		return Report{Complete: true}, err
	}
	p.untouched = true
	for _, objects := range found {
		p.untouched = p.untouched && !objects.Table
	}
	names := p.cluster.ServiceNames()
	unrecalled := p.recall(ctx, found)
	decided, complete, ahead, err := p.fill(ctx, config, names, found)
	if err != nil {
		return Report{Complete: true}, err
	}
	for name := range p.dirty { // Services that are gone
		if p.cluster.Service(name) == nil && decided.decisions != nil {
			decided.decisions[name] = nil
		}
	}
	for name := range p.udp.inForce { // of Services that are gone
		if _, exists := decided.flows[name]; !exists {
			decided.flows[name] = nil
		}
	}
	mirror, plan := complete.Finish(p.surroundings())
	if err := p.commit(ctx, plan, true); err != nil {
		switch _, refused := errors.AsType[*servicesRefused](err); {
		case refused: // without them the tables may do as they are
			p.failures = 0
		case !isShortage(err):
			p.failures++
		}
		return Report{Complete: true}, err
	}
	p.mirror, p.inForce, p.failures, p.synced = mirror, config, 0, true
	// A new map and not clear: walking a map takes as long as the largest it ever was, and the first sync made it that of
	// all.
	p.dirty, p.smallWaits, p.largeWaits = map[model.ObjectName]waiting{}, false, false
	p.stale, p.replanned = nil, map[model.ObjectName]bool{}
	p.cluster.TakeStale()
	p.lastVersions = map[model.ObjectName]ruleset.Service{}
	p.udp.accept(decided.flows)
	p.udp.noteAll()
	p.nodes.Forget()
	p.nodes.Keep(decided.plans)
	p.checks = map[model.ObjectName]selection.HealthCheck{}
	p.acceptChecks(decided.checks)
	p.reasons = newReasons()
	p.reasons.accept(decided.reasons)
	p.handOver(decided.decisions)
	report := p.newReport(len(names))
	for _, batch := range ahead {
		report.count(batch)
	}
	report.add(plan, decided)
	report.Complete, report.HealthChecks, report.Unrecalled = true, p.checks, unrecalled
	return p.finish(ctx, report)
}

// fill decides about all Services, and begins the complete sync with them. If the kernel has no table of ours, it returns
// what it has written ahead of the plan, too.
func (p *Proxy) fill(ctx context.Context, config ruleset.Config, names []model.ObjectName, found map[model.Family]ruleset.Objects) (
	decided, *ruleset.Complete, []ruleset.Batch, error,
) {
	decided, complete := p.newDecided(len(names)), ruleset.NewComplete(config, found)
	if !p.untouched || len(names) <= aheadServices {
		p.decideMore(&decided, names)
		complete.Add(decided.owned)
		return decided, complete, nil, nil
	}
	var ahead []ruleset.Batch
	batches, ended := make(chan ruleset.Batch), make(chan error)
	go func() { ended <- p.commitAhead(ctx, batches) }()
	for part := range slices.Chunk(names, aheadServices) {
		before := len(decided.owned)
		p.decideMore(&decided, part)
		batch := complete.AddAhead(decided.owned[before:])
		ahead = append(ahead, batch)
		batches <- batch
	}
	close(batches)
	if <-ended == nil {
		return decided, complete, ahead, nil
	}
	// What the kernel refused, and whose it is, is found out by one batch, which begins with nothing again.
	found, err := p.found(ctx)
	for family, objects := range found {
		objects.Rebuild = objects.Table
		found[family] = objects
	}
	complete = ruleset.NewComplete(config, found)
	complete.Add(decided.owned)
	return decided, complete, nil, err
}

// commitAhead commits batches until there are no more. After an error it drops them.
func (p *Proxy) commitAhead(ctx context.Context, batches <-chan ruleset.Batch) error {
	var err error
	for batch := range batches {
		if err == nil {
			err = p.kernel.Commit(ctx, batch)
		}
	}
	return err
}

// found asks the kernel what is there.
func (p *Proxy) found(ctx context.Context) (map[model.Family]ruleset.Objects, error) {
	found := map[model.Family]ruleset.Objects{}
	for _, family := range p.config.Families {
		objects, err := p.kernel.Objects(ctx, family)
		if err != nil {
			return nil, fmt.Errorf("read what the %s table holds: %w", family, err)
		}
		if p.failures >= rebuildAfter {
			objects.Rebuild = true
		}
		found[family] = objects
	}
	return found, nil
}
