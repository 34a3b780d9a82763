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
	// Commit does what the batch says, whole or not at all. After an error it is unknown which of the two.
	Commit(ctx context.Context, batch ruleset.Batch) error
	// Objects returns what the family's table holds now.
	Objects(ctx context.Context, family model.Family) (ruleset.Objects, error)
}

// Proxy keeps the kernel's tables in agreement with the cluster, as seen from one node.
type Proxy struct {
	// RetryMax is the longest pause between two tries after a failure; zero for DefaultRetryMax. It is set before Run.
	RetryMax time.Duration

	config  ruleset.Config
	kernel  Kernel
	cluster *model.Cluster
	planner *selection.Planner
	// handlers keep what they make of the decisions in force, nodes among them.
	handlers handlers

	// applied is the configuration in the tables, with what it takes from the node's own object.
	applied ruleset.Config
	// mirror is what the kernel holds; nil while that is unknown: at the start, after a failed commit, and after another
	// process touched the tables. The next sync is complete then.
	mirror *ruleset.Mirror
	// backlog is what is left to do about Services; arrived is how many have ever begun to wait.
	backlog  backlog
	sequence uint64
	// lastLarge says when each namespace had a large Service synced last, by arrival; largeAfter is when the next may be.
	lastLarge              map[string]uint64
	largeAfter             time.Time
	smallWaits, largeWaits bool
	// stale are Services with new clients or new demand that have to be looked at; replanAfter is when others may join
	// them.
	stale       []model.ObjectName
	replanAfter time.Time
	// failures counts the complete syncs that failed in a row, except for shortages; unswept counts the failed sweeps.
	failures, failedCleanups int

	// ingested counts what Apply has taken in since the last report; triggers says when those changes were caused.
	ingested Changes
	triggers triggers
	// synced: at least once. untouched: the kernel had no table of ours before that.
	synced, startedEmpty bool
}

// A complete sync changes the tables that it finds, so that clients keep their affinity. After rebuildAfter failures in
// a row it makes them anew, because the tables themselves may be the cause. It does the same after distrustAfter failed
// sweeps in a row.
const (
	recreateTablesAfter         = 2
	fullSyncAfterFailedCleanups = 3
)

// New returns a proxy for a node, with more readers of what it decides. It does nothing until Sync is called.
func New(node string, config ruleset.Config, kernel Kernel, more ...selection.Handler) *Proxy {
	cluster := model.NewCluster(node)
	cluster.NodePorts = config.NodePorts
	planner := selection.NewPlanner(cluster)
	return &Proxy{
		config:    config,
		kernel:    kernel,
		cluster:   cluster,
		planner:   planner,
		handlers:  append([]selection.Handler{planner}, more...),
		backlog:   newBacklog(),
		lastLarge: map[string]uint64{},
		triggers:  triggers{},
	}
}

// Apply takes a change of the cluster in. The kernel learns of it at the next Sync, and Apply reports whether that is due:
// where nodes are probed changes with each proxy that comes or goes, and seldom concerns a Service.
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
	change.Probed = nil
	return len(dirty) > 0 || !change.IsEmpty()
}

// ForceFullSync makes the next Sync a complete one, because the kernel may hold something else than we put there.
func (p *Proxy) ForceFullSync() { p.dropMirror() }

// Sync makes the kernel agree with the cluster. After an error the rules that were in force stay in force, the report
// says only whether it would have been complete, and the caller tries again. A Service that the kernel refuses is no
// error: the report names it, and the others are in force.
func (p *Proxy) Sync(ctx context.Context) (Report, error) {
	for {
		report, err := p.sync(ctx)
		rejected, ok := errors.AsType[*servicesRejectedError](err)
		if !ok {
			return report, err
		}
		p.quarantine(rejected, time.Now()) // this loop ends: each time there is less left to refuse
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
	decided, around := p.decide(batch.selected), p.nodeState()
	goesOn := batch.large != nil && !p.step(&decided, *batch.large)
	p.largeWaits = p.largeWaits || goesOn
	p.releaseFrontends(&decided, batch.remaining)
	plan := p.mirror.Plan(decided.owned, around)
	if err := p.commit(ctx, plan, decided, false); err != nil {
		return Report{}, err
	}
	for _, name := range batch.selected {
		one := p.backlog.of(name)
		if one.replanned = false; !goesOn || name != *batch.large {
			one.waiting = queuedService{}
		}
		p.backlog.done(name)
	}
	report := p.newReport(len(batch.selected))
	p.accept(plan, decided, &report)
	report, err := p.finish(ctx, report)
	if now := time.Now(); batch.large != nil {
		p.throttleLarge(batch.large.Namespace, now, now.Sub(started))
	}
	return report, err
}

// accept takes over what the kernel took.
func (p *Proxy) accept(plan *ruleset.Plan, decided decisions, report *Report) {
	p.notifyHandlers(decided)
	report.addAffinityChanges(p.mirror, plan, decided)
	p.mirror.Accept(plan)
	report.add(plan)
}

// commit puts a plan into the kernel. After an error the mirror is unknown, unless the kernel took nothing of the plan
// because it refused Services.
func (p *Proxy) commit(ctx context.Context, plan *ruleset.Plan, decided decisions, complete bool) error {
	err := p.kernel.Commit(ctx, plan.Prerequisites)
	prepared := err == nil && len(plan.Prerequisites.Ops) > 0
	if err == nil {
		err = p.kernel.Commit(ctx, plan.Batch)
	}
	if err != nil {
		err = p.attributeFailure(plan, fmt.Errorf("commit %d Services: %w", plan.Services(), err), complete)
		if _, refused := errors.AsType[*servicesRejectedError](err); !refused || prepared || complete {
			p.dropMirror()
			p.handlers.onMaybeApplied(decided)
		}
		return err
	}
	return nil
}

// finish tries refused Services again, notifies the readers, and sweeps.
func (p *Proxy) finish(ctx context.Context, report Report) (Report, error) {
	if err := p.retryRejected(ctx, &report); err != nil {
		return Report{Full: report.Full}, err
	}
	report.Total, report.Contested = p.mirror.Services(), p.cluster.Contested()
	report.EvacuatedTimed, report.EvacuatedUntimed = p.cluster.Evacuated()
	report.Triggered = p.triggers.takeSynced(p.backlog.isWaiting)
	p.reportPending(&report)
	p.notifySynced(report.Full)
	report.CleanupErr = p.cleanUp(ctx, &report)
	return report, nil
}

// cleanUp removes what no Service owns any more, as much as one sync may. Kernels before 6.2 may call a chain busy for a
// moment after its last user is gone, so a failure is no reason to write everything again. If sweeps keep failing, a
// foreign change in our tables may be the reason: then the tables are made anew.
//
// If something is already gone, an earlier sweep succeeded although it reported a failure, or another process removed
// it: the next sync asks what is there. Clients keep their affinity then.
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
			return fmt.Errorf("sweep: %w", err)
		}
		room -= report.count(batch)
		p.mirror.CleanupDone()
	}
	p.failedCleanups = 0
	return nil
}
