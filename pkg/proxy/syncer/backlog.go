package syncer

import (
	"iter"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// pending is the pending work of one Service. The mirror has its applied version.
type pending struct {
	// queueEntry is the queue entry of a Service that changed, until the kernel has accepted it; its sequence is zero if
	// the Service does not wait.
	queueEntry queuedService
	// needsReplan is set if the Service must be decided again because of new clients or new demand.
	needsReplan bool
	// rejection is set if the kernel rejects the newest version. needsReport is set if this changed since the last report;
	// the rejection may have ended.
	rejection   *rejection
	needsReport bool
	// last is the last applied version, if the Service was waiting when the mirror was dropped.
	last *ruleset.Service
}

// backlog is the pending work, by Service. Services without pending work are absent.
type backlog struct {
	services map[model.ObjectName]*pending
	rejected int // number of Services that the kernel rejects
}

func newBacklog() backlog { return backlog{services: map[model.ObjectName]*pending{}} }

// getOrAdd returns the pending work of a Service, for the caller to change; it adds an empty one if there is none.
func (b *backlog) getOrAdd(name model.ObjectName) *pending {
	work := b.services[name]
	if work == nil {
		work = &pending{}
		b.services[name] = work
	}
	return work
}

// removeIfIdle removes a Service if it has no pending work.
func (b *backlog) removeIfIdle(name model.ObjectName) {
	if work := b.services[name]; work == nil || *work != (pending{}) {
		return
	}
	if delete(b.services, name); len(b.services) == 0 {
		b.services = map[model.ObjectName]*pending{} // iterating over a map takes as long as when it was largest
	}
}

// rejectionOf returns the rejection of a Service; nil means that it is not rejected.
func (b *backlog) rejectionOf(name model.ObjectName) *rejection {
	if work := b.services[name]; work != nil {
		return work.rejection
	}
	return nil
}

// setRejection sets the rejection of a Service and marks it for a report; nil means that the rejection ended.
func (b *backlog) setRejection(name model.ObjectName, newRejection *rejection) {
	work := b.getOrAdd(name)
	if work.rejection != nil {
		b.rejected--
	}
	if newRejection != nil {
		b.rejected++
	}
	work.rejection, work.needsReport = newRejection, true
}

// isWaiting reports whether a Service is queued because it changed.
func (b *backlog) isWaiting(name model.ObjectName) bool {
	work := b.services[name]
	return work != nil && work.queueEntry.sequence > 0
}

// waiting yields the Services that are queued because they changed, in any order.
func (b *backlog) waiting() iter.Seq[queuedService] {
	return func(yield func(queuedService) bool) {
		for _, work := range b.services {
			if work.queueEntry.sequence > 0 && !yield(work.queueEntry) {
				return
			}
		}
	}
}

// isReplanning reports whether any Service waits to be decided again because of new clients or new demand.
func (b *backlog) isReplanning() bool {
	for _, work := range b.services {
		if work.needsReplan {
			return true
		}
	}
	return false
}

// rejections yields the rejections, in any order.
func (b *backlog) rejections() iter.Seq[*rejection] {
	return func(yield func(*rejection) bool) {
		if b.rejected == 0 {
			return
		}
		for _, work := range b.services {
			if work.rejection != nil && !yield(work.rejection) {
				return
			}
		}
	}
}
