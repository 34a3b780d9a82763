package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// A full sync is one transaction, because it modifies tables that packets traverse. If there are no tables yet, no
// packet traverses them before their chains exist, and those are written last. So the elements are written early, in
// parts: while the kernel processes one part, the next Services are decided. With 10,000 Services of ten endpoints a
// first sync takes 200 ms. In one transaction it takes 300 ms, of which the kernel takes 172 ms. Parts are small enough
// that the kernel and this process reuse memory.

// partWeight is the approximate number of elements of a part: a thousand Services of ten endpoints.
const partWeight = 2 * maxBatchWeight

func (p *Proxy) syncFull(ctx context.Context, config ruleset.Config) (Report, error) {
	found, err := p.readKernelObjects(ctx)
	if err != nil {
		return Report{Full: true}, err
	}
	noTables := true
	for _, objects := range found {
		noTables = noTables && !objects.Table
	}
	p.startedEmpty = noTables || p.startedEmpty && !p.synced // an earlier attempt may have left tables of ours
	names := p.cluster.ServiceNames()
	fullSync := ruleset.NewFullSync(config, found)
	decided, early, err := p.decideAll(ctx, fullSync, p.parts(names, noTables))
	if err != nil { // a single transaction from scratch shows which Services the kernel rejects
		if rollbackErr := p.kernel.Commit(ctx, fullSync.Rollback()); rollbackErr != nil {
			return Report{Full: true}, fmt.Errorf("fill new tables: %w; roll back: %w", err, rollbackErr)
		}
		fullSync, early = ruleset.NewFullSync(config, found), nil
		fullSync.Add(decided.owned)
	}
	mirror, plan := fullSync.Finish(p.nodeState())
	if err := p.commit(ctx, plan, decided, true); err != nil {
		switch _, isRejection := errors.AsType[*servicesRejectedError](err); {
		case isRejection: // without these Services the existing tables may be fine
			p.failures = 0
		case !isEnvironmentError(err):
			p.failures++
		}
		return Report{Full: true}, err
	}
	p.applied, p.failures, p.synced = config, 0, true
	p.acceptFull(mirror, decided)
	report := p.newReport(len(names))
	for _, batch := range early {
		report.countBatch(batch)
	}
	report.addAffinityChanges(nil, plan, decided)
	report.countPlan(plan)
	report.Full = true
	return p.finish(ctx, report)
}

// acceptFull is accept for all Services. It discards all earlier state of them, except rejections.
func (p *Proxy) acceptFull(mirror *ruleset.Mirror, decided decisions) {
	remaining := map[model.ObjectName]*pending{}
	var deleted []model.ObjectName
	for name, work := range p.backlog.services {
		if work.queueEntry.sequence > 0 && p.cluster.Service(name) == nil {
			deleted = append(deleted, name)
		}
		if work.rejection != nil || work.needsReport {
			remaining[name] = &pending{rejection: work.rejection, needsReport: work.needsReport}
		}
	}
	p.mirror, p.backlog.services, p.smallWaits, p.largeWaits = mirror, remaining, false, false
	p.stale = nil
	p.cluster.TakeStale()
	slices.SortFunc(deleted, model.ObjectName.Compare)
	for _, name := range deleted {
		p.handlers.onApplied(name, nil)
	}
	p.notifyHandlers(decided)
}

// parts splits the names of Services into the parts that a full sync writes.
func (p *Proxy) parts(names []model.ObjectName, noTables bool) [][]model.ObjectName {
	var parts [][]model.ObjectName
	first, weight := 0, 0
	for i, name := range names {
		if weight += selection.Weight(p.cluster, name); noTables && weight > partWeight {
			parts = append(parts, names[first:i+1])
			first, weight = i+1, 0
		}
	}
	return append(parts, names[first:])
}

// decideAll decides about all Services and adds them to the full sync. If there are several parts, it returns the
// batches that it wrote early, and the error of the first one that failed.
func (p *Proxy) decideAll(ctx context.Context, fullSync *ruleset.FullSync, parts [][]model.ObjectName) (
	all decisions, early []ruleset.Batch, err error,
) {
	if len(parts) == 1 {
		all = p.decide(parts[0])
		fullSync.Add(all.owned)
		return all, nil, nil
	}
	services := 0
	for _, part := range parts {
		services += len(part)
	}
	all = newDecisions(services)
	batches, ended := make(chan ruleset.Batch), make(chan error)
	go func() { ended <- p.commitEach(ctx, batches) }()
	for _, part := range parts {
		start := len(all.owned)
		p.decideMore(&all, part)
		batch := fullSync.AddEarly(all.owned[start:])
		early = append(early, batch)
		batches <- batch
	}
	close(batches)
	return all, early, <-ended
}

// commitEach commits batches until the channel is closed. After an error it discards the rest.
func (p *Proxy) commitEach(ctx context.Context, batches <-chan ruleset.Batch) error {
	var err error
	for batch := range batches {
		if err == nil {
			err = p.kernel.Commit(ctx, batch)
		}
	}
	return err
}

// readKernelObjects reads the tables of all families from the kernel.
func (p *Proxy) readKernelObjects(ctx context.Context) (map[model.Family]ruleset.Objects, error) {
	found := map[model.Family]ruleset.Objects{}
	for _, family := range p.config.Families {
		objects, err := p.kernel.Objects(ctx, family)
		if err != nil {
			return nil, fmt.Errorf("read %s table: %w", family, err)
		}
		if p.failures >= recreateTablesAfter {
			objects.NeedsRecreate = true
		}
		found[family] = objects
	}
	return found, nil
}
