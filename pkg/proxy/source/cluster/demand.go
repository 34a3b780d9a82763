package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/lease"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// measuredDemand is followed while a Service is planned with measured demand: the publisher's Lease is read now and
// then, and once there is one, the ServiceDemands are followed. In a cluster where nobody publishes, only that Lease is
// read.
func measuredDemand(w *Watcher) *onDemand {
	objects := source{
		resource: convert.ServiceDemands.Resource, asked: []asked{w.ask(convert.ServiceDemands, convert.ServiceDemands.Resource)},
	}
	return &onDemand{
		watcher: w, need: wake.NewSignal(),
		choose: func(ctx context.Context, now *source) *source { return w.lookForDemand(ctx, now, &objects) },
		await: func(s *state) {
			w.demandPublisher.Observed = lease.Observed{}
			s.nodes.AwaitMeasured(s.now)
		},
		wants: func(s *state) wanted { return wanted{isNeeded: s.nodes.NeedsMeasured()} }, drop: (*state).dropDemands,
		tell: func(resource string) {
			if resource == "" {
				w.options.DemandRenewed(time.Time{})
			}
		},
	}
}

// lookForDemand reads the Lease, takes in what it says, and returns the objects as soon as there is a publisher. If the
// API server does not answer, the last known state stays in force without limit.
func (w *Watcher) lookForDemand(ctx context.Context, now, objects *source) *source {
	if err := w.demandPublisher.read(ctx); err != nil {
		w.options.Log.Debug("reading a Lease failed; trying again", "error", err)
		return now
	}
	is, isNews := demandState(&w.demandPublisher.Observed), false
	w.change(func(s *state) {
		isNews = s.demands.lease != is
		s.takeDemandLease(is)
	})
	w.options.DemandRenewed(w.demandPublisher.RenewedAt())
	if isNews {
		w.logDemand(is)
	}
	switch {
	case is != model.DemandUnpublished:
		return objects
	case now == nil:
		return &source{}
	}
	return now
}

// demandState returns what the publisher's Lease says, once it was read.
func demandState(of *lease.Observed) model.DemandState {
	switch {
	case !of.Exists():
		return model.DemandUnpublished
	case of.IsFresh(servicedemand.GoodFor):
		return model.DemandCounts
	}
	return model.DemandStale
}

// logDemand logs what the Lease says.
func (w *Watcher) logDemand(is model.DemandState) {
	log := w.options.Log.With("lease", w.demandPublisher.name.String())
	age := w.demandPublisher.Age().Round(time.Second)
	switch is {
	case model.DemandUnknown:
	case model.DemandUnpublished:
		log.Warn(string(is.Assumed()))
	case model.DemandStale:
		log.Warn(string(is.Assumed()), "age", age)
	case model.DemandCounts:
		log.Info("planning with what was measured of Services", "age", age)
	}
}

// loadDemands loads what was measured, if a Service needs it.
func (w *Watcher) loadDemands(ctx context.Context, s *state) error {
	if !s.nodes.NeedsMeasured() {
		return nil
	}
	now, err := demandStateNow(ctx, w.listWatches.leases, w.options.TopologyNamespace)
	if err != nil {
		return err
	}
	if now != model.DemandCounts {
		w.options.Log.Warn(string(now.Assumed()))
	}
	s.takeDemandLease(now)
	if now == model.DemandUnpublished {
		return nil
	}
	s.replace(convert.ServiceDemands, nil)
	return w.newStream(w.ask(convert.ServiceDemands, convert.ServiceDemands.Resource)).load(ctx, s)
}

// demandStateNow reads the publisher's Lease for somebody who looks once. Whoever may not read it, but has the right to list
// ServiceDemands, takes them for current: proxies may well read it.
func demandStateNow(ctx context.Context, leases rest.Interface, namespace string) (model.DemandState, error) {
	read, err := lease.Get(ctx, leases, namespace, servicedemand.LeaseName)
	switch {
	case apierrors.IsForbidden(err):
		return model.DemandCounts, nil
	case err != nil:
		return model.DemandUnknown, err
	}
	var once lease.Observed
	once.Observe(time.Now(), read)
	return demandState(&once), nil
}

// demands says whether measured demand counts.
type demands struct {
	lease        model.DemandState // as the publisher's Lease says
	availability availability      // of the objects
	known        model.DemandState // by both together; delivered, or about to be
}

// availability is what is known about all objects of a kind.
type availability int

const (
	unlisted availability = iota
	lacking               // there is no such resource, or it may not be listed
	listed
)

// isMeasured reports whether a Service is planned with measured demand; false for nil.
func isMeasured(service *model.Service) bool {
	return service != nil && !service.IsHeadless && service.Topology.MaxLoad > 0 && service.Topology.Measured
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

// takeDemandLease takes in what the publisher's Lease says.
func (s *state) takeDemandLease(now model.DemandState) {
	s.demands.lease = now
	s.settleDemands()
	s.serve()
}

// settleDemands takes over whether measured demand counts, as soon as that is known, and ends the waiting for it.
func (s *state) settleDemands() {
	if now := s.demands.counts(); now != model.DemandUnknown {
		s.knowDemands(now)
	}
}

// knowDemands delivers whether measured demand counts, if that has changed.
func (s *state) knowDemands(now model.DemandState) {
	if now != s.demands.known {
		s.demands.known, s.change.DemandState = now, &now
	}
	s.nodes.KnowMeasured(now != model.DemandUnknown)
}

// dropDemands takes measured demand back, unless a Service needs it again. It reports whether it has.
func (s *state) dropDemands() bool {
	if s.nodes.NeedsMeasured() {
		return false
	}
	for name := range s.objects[convert.ServiceDemands] {
		s.remove(convert.ServiceDemands, name)
	}
	s.demands.lease, s.demands.availability = model.DemandUnknown, unlisted
	s.knowDemands(model.DemandUnknown)
	return true
}
