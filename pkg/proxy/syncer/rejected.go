package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Rejected is a Service whose newest version the kernel rejects. All other Services are still updated. Of its last
// accepted version, the frontends that the Service still owns stay applied. The Service is retried by itself, after
// growing pauses and whenever it changes.
type Rejected struct {
	Service model.ObjectName
	// Err names the operation, the object and the kernel's reason.
	Err error
	// Since is when the kernel first rejected it, Tries is the number of rejections since then, and Next is when it is
	// retried.
	Since, Next time.Time
	Tries       int
	// HasApplied reports whether an earlier version is applied.
	HasApplied bool
}

// Finding returns the finding that the kernel rejects the Service.
func (r Rejected) Finding() model.Finding {
	reason := "The kernel rejects this Service, so connections to it fail; retrying: "
	if r.HasApplied {
		reason = "The kernel rejects this version of the Service, so an earlier one stays active; retrying: "
	}
	return model.Finding{Code: model.FailedToProgram, Reason: reason + r.Err.Error(), Local: true}.WithObject("Service", r.Service)
}

// maxRejectedBeforeRebuild is the number of Services in one rejected full sync above which the tables themselves are
// the suspected cause: a set that is full rejects them all, and is recreated after recreateTablesAfter failures.
const maxRejectedBeforeRebuild = 100

// maxRetriesPerSync is how many Services are retried in one sync. The others wait for the next one; no other Service
// waits for them.
const maxRetriesPerSync = 10

// rejection is a Rejected with the applied version of the Service.
type rejection struct {
	Rejected
	pause time.Duration
	// applied is the version that the kernel accepted last; it has no ports if there is none.
	applied ruleset.Service
	// changed is set if the Service changed since the last attempt.
	changed bool
}

// servicesRejectedError is the error of a commit that failed because of Services, with the kernel's reason by Service.
type servicesRejectedError struct {
	error
	reasons map[model.ObjectName]error
}

// Unwrap returns the error of the commit.
func (e *servicesRejectedError) Unwrap() error { return e.error }

// attributeFailure returns the error of a commit; it is a *servicesRejectedError if the kernel rejected elements of
// Services.
//
// Unless the plan is for a full sync, the reason may also be that the tables differ from the mirror. A full sync finds
// that out.
func (p *Proxy) attributeFailure(plan *ruleset.Plan, err error, full bool) error {
	rejected, ok := errors.AsType[*ruleset.RejectedError](err)
	if !ok || isEnvironmentError(err) {
		return err
	}
	if !full && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.EBUSY)) {
		return err
	}
	reasons, all := plan.Owners(rejected.Rejections)
	if !all || full && !p.canAttribute(reasons) {
		return err
	}
	return &servicesRejectedError{err, reasons}
}

// canAttribute reports whether Services can be the reason that the kernel rejected a full sync. If the kernel accepted
// the same versions before, or nothing is known about them, the reason may be an external modification of the tables.
// Then the tables are recreated first.
func (p *Proxy) canAttribute(reasons map[model.ObjectName]error) bool {
	if p.failures > recreateTablesAfter {
		return true
	}
	for name := range reasons {
		changed := p.backlog.isWaiting(name) && (p.synced || p.startedEmpty)
		if p.backlog.rejectionOf(name) == nil && !changed {
			return false
		}
	}
	return len(reasons) <= maxRejectedBeforeRebuild
}

// quarantine makes the rejected Services keep the version that the kernel accepted last, or none if it rejected that
// version too.
func (p *Proxy) quarantine(rejected *servicesRejectedError, now time.Time) {
	for name, err := range rejected.reasons {
		known := p.backlog.rejectionOf(name)
		if known == nil {
			known = &rejection{Rejected: Rejected{Service: name, Since: now}, applied: p.lastApplied(name)}
			p.recordRejection(known, err, now)
			continue
		}
		known.applied = ruleset.Service{Name: name}
		p.backlog.setRejection(name, known)
	}
}

// recordRejection records that the kernel rejected a Service, and schedules the next attempt.
func (p *Proxy) recordRejection(r *rejection, err error, now time.Time) {
	r.pause = min(max(2*r.pause, retryMin), p.retryMax())
	r.Err, r.Next, r.changed = err, now.Add(r.pause), false
	r.Tries++
	p.backlog.setRejection(r.Service, r)
}

// lastApplied returns the version of a Service that the kernel accepted last, if it is known.
func (p *Proxy) lastApplied(name model.ObjectName) ruleset.Service {
	if p.mirror != nil {
		return p.mirror.Service(name)
	}
	if work := p.backlog.services[name]; work != nil && work.last != nil {
		return *work.last
	}
	return ruleset.Service{Name: name}
}

// dropMirror drops the mirror, but keeps the applied versions of the Services that wait.
func (p *Proxy) dropMirror() {
	if p.mirror == nil {
		return
	}
	for queued := range p.backlog.waiting() {
		last := p.mirror.Service(queued.name)
		p.backlog.services[queued.name].last = &last
	}
	p.mirror = nil
}

// stillOwned returns a version of a Service without the frontends that it no longer owns.
func (p *Proxy) stillOwned(version ruleset.Service) ruleset.Service {
	var ports []ruleset.Port
	for _, port := range version.Ports {
		port.Frontends = slices.DeleteFunc(slices.Clone(port.Frontends), func(frontend ruleset.Frontend) bool {
			return !p.cluster.Owns(version.Name, frontend.Frontend)
		})
		if len(port.Frontends) > 0 {
			ports = append(ports, port)
		}
	}
	return ruleset.Service{Name: version.Name, Ports: ports}
}

// keepApplied adds, instead of a decision, the part of a rejected Service that stays applied: those frontends of the
// last accepted version that the Service still owns. Another Service may own the others by now.
func (p *Proxy) keepApplied(all *decisions, r *rejection) {
	kept := p.stillOwned(r.applied)
	all.owned = append(all.owned, kept)
	if len(kept.Ports) == 0 {
		all.derived[r.Service] = nil
		return
	}
	all.keepApplied(r.applied, kept)
}

// retryRejected retries some of the rejected Services, each in its own transaction, so that no other Service waits for
// it or fails with it. The returned error does not concern the rejected Services.
func (p *Proxy) retryRejected(ctx context.Context, report *Report) error {
	for _, name := range p.due(time.Now()) {
		decided := newDecisions(1)
		p.decideIncludingRejected(&decided, []model.ObjectName{name})
		p.releaseFrontends(&decided, slices.Collect(p.backlog.waiting()))
		plan := p.mirror.Plan(decided.owned, p.mirror.NodeState())
		// One transaction: if the kernel rejects it, the tables are unchanged. A packet in transit may have to be
		// retransmitted.
		both := ruleset.Batch{Ops: slices.Concat(plan.Prerequisites.Ops, plan.Batch.Ops)}
		err := p.kernel.Commit(ctx, both)
		if err == nil {
			p.backlog.setRejection(name, nil)
			p.accept(plan, decided, report)
		} else if rejected, ok := errors.AsType[*servicesRejectedError](p.attributeFailure(plan, err, true)); ok {
			p.recordRejection(p.backlog.rejectionOf(name), rejected.reasons[name], time.Now())
			continue
		}
		if err != nil {
			p.dropMirror()
			p.handlers.onMaybeApplied(decided)
			return fmt.Errorf("commit previously rejected Service %s: %w", name, err)
		}
	}
	return nil
}

// due returns the Services to retry now: those whose pause is over and those that changed, ordered by Next.
func (p *Proxy) due(now time.Time) []model.ObjectName {
	var due []*rejection
	for r := range p.backlog.rejections() {
		if r.changed || !now.Before(r.Next) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *rejection) int { return cmp.Or(a.Next.Compare(b.Next), a.Service.Compare(b.Service)) })
	var names []model.ObjectName
	for _, r := range due[:min(len(due), maxRetriesPerSync)] {
		names = append(names, r.Service)
	}
	return names
}

// untilNextRetry returns the time until a rejected Service is retried; zero means that there is none.
func (p *Proxy) untilNextRetry(now time.Time) time.Duration {
	var until time.Duration
	for r := range p.backlog.rejections() {
		wait := r.Next.Sub(now)
		if r.changed {
			wait = 0
		}
		if wait = max(wait, syncInterval); until == 0 || wait < until {
			until = wait
		}
	}
	return until
}

// reportPending adds the numbers of waiting and rejected Services, and the rejections that started or ended since the
// last report.
func (p *Proxy) reportPending(report *Report) {
	report.Waiting, report.RejectedTotal = len(p.stale), p.backlog.rejected
	var unreported []model.ObjectName
	for name, work := range p.backlog.services {
		if work.queueEntry.sequence > 0 {
			report.Waiting++
		}
		if work.needsReplan {
			report.Waiting++
		}
		if work.needsReport {
			unreported = append(unreported, name)
		}
	}
	slices.SortFunc(unreported, model.ObjectName.Compare)
	for _, name := range unreported {
		if r := p.backlog.rejectionOf(name); r != nil {
			r.HasApplied = len(r.applied.Ports) > 0
			report.Rejected = append(report.Rejected, r.Rejected)
		} else {
			report.NoLongerRejected = append(report.NoLongerRejected, name)
		}
		p.backlog.services[name].needsReport = false
		p.backlog.removeIfIdle(name)
	}
}

// environmentErrors are errors that do not depend on the content of our tables: the kernel temporarily lacks a
// resource, another transaction interfered, or the tables belong to another process, such as a predecessor that has not
// ended yet. ENFILE is not among them: it means that a set is full, because another program created it too small.
var environmentErrors = []error{
	syscall.ENOBUFS, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN, syscall.ETIMEDOUT, os.ErrDeadlineExceeded, context.DeadlineExceeded,
	syscall.ERESTART, syscall.EPERM,
}

// isEnvironmentError reports whether a failure is unrelated to the content of our tables and to any Service. Recreating
// the tables would not help then, and every client would lose its affinity.
func isEnvironmentError(err error) bool {
	return slices.ContainsFunc(environmentErrors, func(target error) bool { return errors.Is(err, target) })
}
