package apiserver

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/lease"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// measuredDemand is followed while a Service is planned with measured demand: the publisher's Lease is read now and
// then, and once there is one, the ServiceDemands are followed. In a cluster where nobody publishes, only that Lease is
// read.
func measuredDemand(w *Watcher) *onDemandWatch {
	objects := source{
		resource: convert.ServiceDemands.Resource, requests: []resourceRequest{w.newRequest(convert.ServiceDemands,
			convert.ServiceDemands.Resource)},
	}
	return &onDemandWatch{
		watcher: w, interestChanged: notify.NewSignal(),
		choose: func(ctx context.Context, now *source) *source { return w.pollDemandLease(ctx, now, &objects) },
		onStart: func(s *state) {
			w.demandPublisher.Observed = lease.Observed{}
			s.nodes.WaitForMeasured(s.now)
		},
		interestOf: func(s *state) interest { return interest{isNeeded: s.nodes.NeedsMeasured()} }, drop: (*state).dropDemands,
		onSourceChange: func(resource string) {
			if resource == "" {
				w.options.OnDemandRenewed(time.Time{})
			}
		},
	}
}

// pollDemandLease reads the Lease, takes in what it says, and returns the objects as soon as there is a publisher. If the
// API server does not answer, the last known state stays in force without limit.
func (w *Watcher) pollDemandLease(ctx context.Context, now, objects *source) *source {
	if err := w.demandPublisher.read(ctx); err != nil {
		w.options.Log.Debug("reading a Lease failed; trying again", "error", err)
		return now
	}
	is, isNews := demandState(&w.demandPublisher.Observed), false
	w.change(func(s *state) {
		isNews = s.demands.lease != is
		s.takeDemandLease(is)
	})
	w.options.OnDemandRenewed(w.demandPublisher.RenewedAt())
	if isNews {
		w.logDemandState(is)
	}
	switch {
	case is != model.DemandUnavailable:
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
		return model.DemandUnavailable
	case of.IsFresh(servicedemand.FreshFor):
		return model.DemandActive
	}
	return model.DemandStale
}

// logDemandState logs what the Lease says.
func (w *Watcher) logDemandState(is model.DemandState) {
	log := w.options.Log.With("lease", w.demandPublisher.name.String())
	age := w.demandPublisher.Age().Round(time.Second)
	switch is {
	case model.DemandUnknown:
	case model.DemandUnavailable:
		log.Warn(string(is.Assumed()))
	case model.DemandStale:
		log.Warn(string(is.Assumed()), "age", age)
	case model.DemandActive:
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
	if now != model.DemandActive {
		w.options.Log.Warn(string(now.Assumed()))
	}
	s.takeDemandLease(now)
	if now == model.DemandUnavailable {
		return nil
	}
	s.replace(convert.ServiceDemands, nil)
	return w.newStream(w.newRequest(convert.ServiceDemands, convert.ServiceDemands.Resource)).load(ctx, s)
}

// demandStateNow reads the publisher's Lease for somebody who looks once. Whoever may not read it, but has the right to list
// ServiceDemands, takes them for current: proxies may well read it.
func demandStateNow(ctx context.Context, leases rest.Interface, namespace string) (model.DemandState, error) {
	read, err := lease.Get(ctx, leases, namespace, servicedemand.LeaseName)
	switch {
	case apierrors.IsForbidden(err):
		return model.DemandActive, nil
	case err != nil:
		return model.DemandUnknown, err
	}
	var once lease.Observed
	once.Observe(time.Now(), read)
	return demandState(&once), nil
}

// demandGate says whether measured demand counts.
type demandGate struct {
	lease        model.DemandState // as the publisher's Lease says
	availability availability      // of the objects
	delivered    model.DemandState // by both together; delivered, or about to be
}

// availability is what is known about all objects of a kind.
type availability int

const (
	unlisted    availability = iota
	unavailable              // there is no such resource, or it may not be listed
	listed
)

// isMeasured reports whether a Service is planned with measured demand; false for nil.
func isMeasured(service *model.Service) bool {
	return service != nil && !service.IsHeadless && service.Topology.MaxLoad > 0 && service.Topology.Measured
}

// state returns whether measured demand counts: objects and Lease are useless without each other. Unknown: we have yet
// to find out.
func (d *demandGate) state() model.DemandState {
	switch {
	case d.lease == model.DemandUnavailable || d.availability == unavailable:
		return model.DemandUnavailable
	case d.availability == listed:
		return d.lease
	}
	return model.DemandUnknown
}

// takeDemandLease takes in what the publisher's Lease says.
func (s *state) takeDemandLease(now model.DemandState) {
	s.demands.lease = now
	s.resolveDemandState()
	s.deliverUnblocked()
}

// resolveDemandState takes over whether measured demand counts, as soon as that is known, and ends the waiting for it.
func (s *state) resolveDemandState() {
	if now := s.demands.state(); now != model.DemandUnknown {
		s.deliverDemandState(now)
	}
}

// deliverDemandState delivers whether measured demand counts, if that has changed.
func (s *state) deliverDemandState(now model.DemandState) {
	if now != s.demands.delivered {
		s.demands.delivered, s.change.DemandState = now, &now
	}
	s.nodes.SetMeasured(now != model.DemandUnknown)
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
	s.deliverDemandState(model.DemandUnknown)
	return true
}
