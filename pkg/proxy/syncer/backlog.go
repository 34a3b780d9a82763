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
	waiting queuedService
	// needsReplan is set if the Service must be decided again because of new clients or new demand.
	replanned bool
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
	one := b.services[name]
	if one == nil {
		one = &pending{}
		b.services[name] = one
	}
	return one
}

// removeIfIdle removes a Service if it has no pending work.
func (b *backlog) done(name model.ObjectName) {
	if one := b.services[name]; one == nil || *one != (pending{}) {
		return
	}
	if delete(b.services, name); len(b.services) == 0 {
		b.services = map[model.ObjectName]*pending{} // iterating over a map takes as long as when it was largest
	}
}

// rejectionOf returns the rejection of a Service; nil means that it is not rejected.
func (b *backlog) rejectionOf(name model.ObjectName) *rejection {
	if one := b.services[name]; one != nil {
		return one.rejection
	}
	return nil
}

// setRejection sets the rejection of a Service and marks it for a report; nil means that the rejection ended.
func (b *backlog) setRejection(name model.ObjectName, now *rejection) {
	one := b.getOrAdd(name)
	if one.rejection != nil {
		b.rejected--
	}
	if now != nil {
		b.rejected++
	}
	one.rejection, one.needsReport = now, true
}

// isWaiting reports whether a Service is queued because it changed.
func (b *backlog) isWaiting(name model.ObjectName) bool {
	one := b.services[name]
	return one != nil && one.waiting.sequence > 0
}

// waiting yields the Services that are queued because they changed, in any order.
func (b *backlog) waiting() iter.Seq[queuedService] {
	return func(yield func(queuedService) bool) {
		for _, one := range b.services {
			if one.waiting.sequence > 0 && !yield(one.waiting) {
				return
			}
		}
	}
}

// isReplanning reports whether any Service waits to be decided again because of new clients or new demand.
func (b *backlog) isReplanning() bool {
	for _, one := range b.services {
		if one.replanned {
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
		for _, one := range b.services {
			if one.rejection != nil && !yield(one.rejection) {
				return
			}
		}
	}
}
