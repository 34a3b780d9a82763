package proxy

import (
	"iter"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// pending is what is left to do about one Service. What is in force of it the mirror knows.
type pending struct {
	// waiting: it changed, and waits until the kernel has accepted its elements; since is zero if it does not.
	waiting waiting
	// replanned: it is to be decided anew because it has new clients or new demand.
	replanned bool
	// refusal: the kernel does not take its newest version; nil if it does. Unreported: there is something new to report of
	// that, be it that it is over.
	refusal    *refusal
	unreported bool
	// last is what the kernel took last of it, if it was waiting when the mirror was given up.
	last *ruleset.Service
}

// of returns what is left to do about a Service, to be filled in.
func (p *Proxy) of(name model.ObjectName) *pending {
	one := p.pending[name]
	if one == nil {
		one = &pending{}
		p.pending[name] = one
	}
	return one
}

// done forgets a Service about which nothing is left to do.
func (p *Proxy) done(name model.ObjectName) {
	if one := p.pending[name]; one == nil || *one != (pending{}) {
		return
	}
	if delete(p.pending, name); len(p.pending) == 0 {
		p.pending = map[model.ObjectName]*pending{} // walking a map takes as long as the largest it ever was
	}
}

// refused returns what the kernel refuses of a Service; nil if that is nothing.
func (p *Proxy) refused(name model.ObjectName) *refusal {
	if one := p.pending[name]; one != nil {
		return one.refusal
	}
	return nil
}

// setRefusal notes what the kernel refuses of a Service, which is to be reported; nil: nothing any more.
func (p *Proxy) setRefusal(name model.ObjectName, now *refusal) {
	one := p.of(name)
	if one.refusal != nil {
		p.refusing--
	}
	if now != nil {
		p.refusing++
	}
	one.refusal, one.unreported = now, true
}

// isWaiting reports whether a Service waits to be decided anew, because it changed.
func (p *Proxy) isWaiting(name model.ObjectName) bool {
	one := p.pending[name]
	return one != nil && one.waiting.since > 0
}

// waiting yields the Services that wait to be decided anew because they changed, in any order.
func (p *Proxy) waiting() iter.Seq[waiting] {
	return func(yield func(waiting) bool) {
		for _, one := range p.pending {
			if one.waiting.since > 0 && !yield(one.waiting) {
				return
			}
		}
	}
}

// isReplanning reports whether a Service waits to be decided anew because it has new clients or new demand.
func (p *Proxy) isReplanning() bool {
	for _, one := range p.pending {
		if one.replanned {
			return true
		}
	}
	return false
}

// refusals yields the Services that the kernel refuses, in any order.
func (p *Proxy) refusals() iter.Seq[*refusal] {
	return func(yield func(*refusal) bool) {
		if p.refusing == 0 {
			return
		}
		for _, one := range p.pending {
			if one.refusal != nil && !yield(one.refusal) {
				return
			}
		}
	}
}
