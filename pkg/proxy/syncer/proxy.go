package syncer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Kernel holds our tables.
type Kernel interface {
	// Commit applies the whole batch or nothing of it. After an error, which of the two happened is unknown.
	Commit(ctx context.Context, batch ruleset.Batch) error
	// Objects returns the current content of the family's table.
	Objects(ctx context.Context, family model.Family) (ruleset.Objects, error)
}

// Proxy keeps the kernel's tables in agreement with the cluster, as seen from one node.
type Proxy struct {
	// RetryMax is the longest pause between two attempts after a failure; zero means DefaultRetryMax. It is set before
	// Run.
	RetryMax time.Duration

	config  ruleset.Config
	kernel  Kernel
	cluster *model.Cluster
	planner *selection.Planner
	// handlers keep data derived from the applied decisions. The planner is the first of them.
	handlers handlers

	// applied is the configuration in the tables, including the settings from the node's own object.
	applied ruleset.Config
	// mirror is the content of the kernel's tables. It is nil while that is unknown: at the start, after a failed commit,
	// and after another process modified the tables. The next sync is then a full one.
	mirror *ruleset.Mirror
	// backlog is the pending work, by Service. sequence is how many Services have ever been queued.
	backlog  backlog
	sequence uint64
	// lastLarge is, by namespace, the value of sequence when a large Service of it was last synced. largeAfter is when the
	// next large Service may be synced.
	lastLarge              map[string]uint64
	largeAfter             time.Time
	smallWaits, largeWaits bool
	// stale are Services with new clients or new demand that need a check whether their plan changes. replanAfter is the
	// earliest time at which more are added.
	stale       []model.ObjectName
	replanAfter time.Time
	// failures counts the consecutive failed full syncs, except those for environment errors; failedCleanups counts the
	// consecutive failed cleanups.
	failures, failedCleanups int

	// ingested counts the changes that Apply received since the last report; triggers holds the times of their causes.
	ingested Changes
	triggers triggers
	// synced is set after the first full sync. startedEmpty is set if the kernel had no table of ours before that.
	synced, startedEmpty bool
}

// A full sync modifies the existing tables, so that clients keep their affinity. After recreateTablesAfter consecutive
// failures it deletes and recreates them, because the tables themselves may be the cause. It does the same after
// fullSyncAfterFailedCleanups consecutive failed cleanups.
const (
	recreateTablesAfter         = 2
	fullSyncAfterFailedCleanups = 3
)

// New returns a proxy for a node. It calls the additional handlers with its decisions, and does nothing until Sync is
// called.
func New(node string, config ruleset.Config, kernel Kernel, additional ...selection.Handler) *Proxy {
	cluster := model.NewCluster(node)
	cluster.NodePorts = config.NodePorts
	planner := selection.NewPlanner(cluster)
	return &Proxy{
		config:    config,
		kernel:    kernel,
		cluster:   cluster,
		planner:   planner,
		handlers:  append([]selection.Handler{planner}, additional...),
		backlog:   newBacklog(),
		lastLarge: map[string]uint64{},
		triggers:  triggers{},
	}
}

// Apply records a change of the cluster; the next Sync writes it to the kernel. It reports whether a sync is needed: a
// change of the probed addresses, which every starting or stopping proxy causes, seldom affects a Service.
func (p *Proxy) Apply(change model.Change) (needsSync bool) {
	p.ingested.add(change)
	p.triggers.record(p.cluster, change)
	dirty := p.cluster.Apply(change)
	p.planner.ApplyChange(change)
	for _, name := range dirty {
		p.enqueue(name)
		if rejected := p.backlog.rejectionOf(name); rejected != nil {
			rejected.changed = true
		}
	}
	change.ProbeTargets = nil
	return len(dirty) > 0 || !change.IsEmpty()
}

// ForceFullSync makes the next Sync a full one, because the kernel's tables may differ from the mirror.
func (p *Proxy) ForceFullSync() { p.dropMirror() }

// Sync makes the kernel agree with the cluster. After an error the applied rules stay as they were, the report only has
// Full set, and the caller retries. A Service that the kernel rejects is not an error: the report names it, and the
// other Services are applied.
func (p *Proxy) Sync(ctx context.Context) (Report, error) {
	for {
		report, err := p.sync(ctx)
		rejected, ok := errors.AsType[*servicesRejectedError](err)
		if !ok {
			return report, err
		}
		p.quarantine(rejected, time.Now()) // the loop ends: each iteration leaves fewer Services to reject
	}
}

func (p *Proxy) sync(ctx context.Context) (Report, error) {
	config := p.resolveConfig()
	if p.mirror == nil || !slices.Equal(config.LocalTraffic.Prefixes, p.applied.LocalTraffic.Prefixes) {
		return p.syncFull(ctx, config)
	}
	return p.syncPartial(ctx)
}

func (p *Proxy) syncPartial(ctx context.Context) (Report, error) {
	started := time.Now()
	batch := p.nextBatch(started)
	decided, nodeState := p.decide(batch.selected), p.nodeState()
	hasMoreSteps := batch.large != nil && !p.step(&decided, *batch.large)
	p.largeWaits = p.largeWaits || hasMoreSteps
	p.releaseFrontends(&decided, batch.remaining)
	plan := p.mirror.Plan(decided.owned, nodeState)
	if err := p.commit(ctx, plan, decided, false); err != nil {
		return Report{}, err
	}
	for _, name := range batch.selected {
		work := p.backlog.getOrAdd(name)
		if work.needsReplan = false; !hasMoreSteps || name != *batch.large {
			work.queueEntry = queuedService{}
		}
		p.backlog.removeIfIdle(name)
	}
	report := p.newReport(len(batch.selected))
	p.accept(plan, decided, &report)
	report, err := p.finish(ctx, report)
	if now := time.Now(); batch.large != nil {
		p.throttleLarge(batch.large.Namespace, now, now.Sub(started))
	}
	return report, err
}

// accept updates handlers, mirror and report after the kernel accepted a plan.
func (p *Proxy) accept(plan *ruleset.Plan, decided decisions, report *Report) {
	p.notifyHandlers(decided)
	report.addAffinityChanges(p.mirror, plan, decided)
	p.mirror.Accept(plan)
	report.countPlan(plan)
}

// commit writes a plan to the kernel. After an error it drops the mirror, unless the kernel applied nothing of the plan
// because it rejected Services.
func (p *Proxy) commit(ctx context.Context, plan *ruleset.Plan, decided decisions, full bool) error {
	err := p.kernel.Commit(ctx, plan.Prerequisites)
	prepared := err == nil && len(plan.Prerequisites.Ops) > 0
	if err == nil {
		err = p.kernel.Commit(ctx, plan.Batch)
	}
	if err != nil {
		err = p.attributeFailure(plan, fmt.Errorf("commit %d Services: %w", plan.Services(), err), full)
		if _, isRejection := errors.AsType[*servicesRejectedError](err); !isRejection || prepared || full {
			p.dropMirror()
			p.handlers.onMaybeApplied(decided)
		}
		return err
	}
	return nil
}

// finish retries rejected Services, notifies the handlers, and cleans up.
func (p *Proxy) finish(ctx context.Context, report Report) (Report, error) {
	if err := p.retryRejected(ctx, &report); err != nil {
		return Report{Full: report.Full}, err
	}
	report.Applied, report.Contested = p.mirror.Services(), p.cluster.Contested()
	report.EvacuatedTimed, report.EvacuatedUntimed = p.cluster.Evacuated()
	report.Triggered = p.triggers.takeSynced(p.backlog.isWaiting)
	p.reportPending(&report)
	p.notifySynced(report.Full)
	report.CleanupErr = p.cleanUp(ctx, &report)
	return report, nil
}

// cleanUp deletes elements and chains that no Service owns any more, within the limit of one sync. Kernels before 6.2
// may report a chain as busy for a moment after its last user was deleted, so one failure is no reason for a full sync.
// If cleanups keep failing, an external modification of our tables may be the reason: then the tables are recreated.
//
// If something is already gone, an earlier cleanup succeeded although it reported a failure, or another process deleted
// it. The next sync reads the tables again, and clients keep their affinity.
func (p *Proxy) cleanUp(ctx context.Context, report *Report) error {
	for room := max(maxBatchWeight-report.written(), maxBatchWeight/8); room > 0; {
		batch := p.mirror.Cleanup(room)
		if len(batch.Ops) == 0 {
			break
		}
		if err := p.kernel.Commit(ctx, batch); err != nil {
			if !isEnvironmentError(err) {
				p.failedCleanups++
			}
			if p.failedCleanups >= fullSyncAfterFailedCleanups {
				p.dropMirror()
				p.failedCleanups, p.failures = 0, recreateTablesAfter
			} else if errors.Is(err, fs.ErrNotExist) {
				p.dropMirror()
			}
			return fmt.Errorf("clean up tables: %w", err)
		}
		room -= report.countBatch(batch)
		p.mirror.CleanupDone()
	}
	p.failedCleanups = 0
	return nil
}
