package cluster

import (
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// demands says whether measured demand counts, and which Services wait until that is known: with assumed demand a
// starting proxy would for a moment plan something else than its neighbours. It is not about nodes, so it is not in
// package nodes.
type demands struct {
	// measured are the Services that are planned with it: all of them wait, or none. isReleased: they have just stopped.
	measured   map[model.ObjectName]bool
	isReleased bool

	lease        model.DemandState // as the publisher's Lease says
	availability availability      // of the objects
	known        model.DemandState // by both together; delivered, or about to be

	// giveUp is until when Services wait; zero if nothing that was asked for is outstanding. isOverdue: that time has
	// passed.
	giveUp    time.Time
	isOverdue bool
}

// availability is what is known about all objects of a kind.
type availability int

const (
	unlisted availability = iota
	lacking               // there is no such resource, or it may not be listed
	listed
)

func newDemands() demands { return demands{measured: map[model.ObjectName]bool{}} }

// isMeasured reports whether a Service is planned with measured demand; false for nil.
func isMeasured(service *model.Service) bool {
	return service != nil && !service.IsHeadless && service.Topology.MaxLoad > 0 && service.Topology.Measured
}

// ask takes in a Service, or nil for one that is gone, and reports whether it has to wait.
func (d *demands) ask(name model.ObjectName, service *model.Service) (waits bool) {
	if delete(d.measured, name); isMeasured(service) {
		d.measured[name] = true
	}
	return d.waits(name)
}

// waits reports whether a Service waits.
func (d *demands) waits(name model.ObjectName) bool {
	return d.measured[name] && d.known == model.DemandUnknown && !d.isOverdue
}

// counts returns whether measured demand counts: objects and Lease are useless without each other. Unknown: we have yet
// to find out.
func (d *demands) counts() model.DemandState {
	switch {
	case d.lease == model.DemandUnpublished || d.availability == lacking:
		return model.DemandUnpublished
	case d.availability == listed:
		return d.lease
	}
	return model.DemandUnknown
}

// takeReleased returns the Services that may have stopped waiting since the last call.
func (d *demands) takeReleased() []model.ObjectName {
	if !d.isReleased {
		return nil
	}
	d.isReleased = false
	return slices.Collect(maps.Keys(d.measured))
}

// next returns when Services stop waiting, and whether anything is waited for.
func (d *demands) next() (at time.Time, some bool) { return d.giveUp, !d.giveUp.IsZero() }

// expire ends the waiting of Services that have waited long enough, and returns how many.
func (d *demands) expire(now time.Time) (waited int) {
	if d.giveUp.IsZero() || now.Before(d.giveUp) {
		return 0
	}
	if !d.isOverdue {
		waited = len(d.measured)
	}
	d.giveUp, d.isOverdue, d.isReleased = time.Time{}, true, true
	return waited
}

// needsDemands reports whether a Service is planned with measured demand.
func (s *state) needsDemands() bool { return len(s.demands.measured) > 0 }

// awaitDemands takes in that measured demand is asked for from now on. Services wait for it as long as for other nodes.
func (s *state) awaitDemands() {
	if s.demands.known == model.DemandUnknown {
		s.demands.giveUp = s.now.Add(nodes.Patience)
	}
}

// takeDemandLease takes in what the publisher's Lease says.
func (s *state) takeDemandLease(now model.DemandState) {
	s.demands.lease = now
	s.settleDemands()
	s.serve()
}

// settleDemands takes over whether measured demand counts, as soon as that is known, and ends the waiting for it.
func (s *state) settleDemands() {
	now := s.demands.counts()
	if now == model.DemandUnknown {
		return
	}
	s.demands.giveUp = time.Time{}
	s.knowDemands(now)
}

// knowDemands delivers whether measured demand counts, if that has changed.
func (s *state) knowDemands(now model.DemandState) {
	if now != s.demands.known {
		s.demands.known, s.change.DemandState, s.demands.isReleased = now, &now, true
	}
}

// dropDemands takes measured demand back, unless a Service needs it again. It reports whether it has.
func (s *state) dropDemands() bool {
	if s.needsDemands() {
		return false
	}
	for name := range s.objects[convert.ServiceDemands] {
		s.remove(convert.ServiceDemands, name)
	}
	d := &s.demands
	d.lease, d.availability, d.giveUp, d.isOverdue = model.DemandUnknown, unlisted, time.Time{}, false
	s.knowDemands(model.DemandUnknown)
	return true
}
