package syncer

import (
	"iter"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// pending is what is left to do about one Service. The mirror knows what of it is in force.
type pending struct {
	// waiting: it changed, and waits until the kernel has accepted its elements; since is zero if it does not.
	waiting queuedService
	// replanned: it must be decided anew because it has new clients or new demand.
	replanned bool
	// rejection: the kernel does not take its newest version; nil if it does. Unreported: there is news to report about
	// that, possibly that it is over.
	rejection   *rejection
	needsReport bool
	// last is the version that the kernel took last, if the Service was waiting when the mirror was given up.
	last *ruleset.Service
}

// backlog is what is left to do, by Service. It has only Services with something left to do.
type backlog struct {
	services map[model.ObjectName]*pending
	rejected int // how many of them the kernel refuses
}

func newBacklog() backlog { return backlog{services: map[model.ObjectName]*pending{}} }

// of returns what is left to do about a Service, for the caller to fill in.
func (b *backlog) of(name model.ObjectName) *pending {
	one := b.services[name]
	if one == nil {
		one = &pending{}
		b.services[name] = one
	}
	return one
}

// done forgets a Service about which nothing is left to do.
func (b *backlog) done(name model.ObjectName) {
	if one := b.services[name]; one == nil || *one != (pending{}) {
		return
	}
	if delete(b.services, name); len(b.services) == 0 {
		b.services = map[model.ObjectName]*pending{} // walking a map takes as long as when it was largest
	}
}

// rejectionOf returns the refusal of a Service; nil if the kernel refuses nothing of it.
func (b *backlog) rejectionOf(name model.ObjectName) *rejection {
	if one := b.services[name]; one != nil {
		return one.rejection
	}
	return nil
}

// setRejection notes, and marks for a report, what the kernel refuses of a Service; nil: nothing any more.
func (b *backlog) setRejection(name model.ObjectName, now *rejection) {
	one := b.of(name)
	if one.rejection != nil {
		b.rejected--
	}
	if now != nil {
		b.rejected++
	}
	one.rejection, one.needsReport = now, true
}

// isWaiting reports whether a Service waits to be decided anew, because it changed.
func (b *backlog) isWaiting(name model.ObjectName) bool {
	one := b.services[name]
	return one != nil && one.waiting.sequence > 0
}

// waiting yields the Services that wait to be decided anew because they changed, in any order.
func (b *backlog) waiting() iter.Seq[queuedService] {
	return func(yield func(queuedService) bool) {
		for _, one := range b.services {
			if one.waiting.sequence > 0 && !yield(one.waiting) {
				return
			}
		}
	}
}

// isReplanning reports whether a Service waits to be decided anew because it has new clients or new demand.
func (b *backlog) isReplanning() bool {
	for _, one := range b.services {
		if one.replanned {
			return true
		}
	}
	return false
}

// rejections yields the Services that the kernel refuses, in any order.
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
