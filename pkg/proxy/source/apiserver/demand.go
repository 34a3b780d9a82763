package apiserver

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/lease"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// measuredDemand watches measured demand while a Service is planned with it: it reads the publisher's Lease
// periodically, and watches ServiceDemands once there is a Lease. In a cluster without a publisher only the Lease is
// read.
func measuredDemand(w *Watcher) *onDemandWatch {
	objects := source{
		resource: convert.ServiceDemands.Resource, requests: []resourceRequest{w.newRequest(convert.ServiceDemands,
			convert.ServiceDemands.Resource)},
	}
	return &onDemandWatch{
		watcher: w, interestChanged: notify.NewSignal(),
		choose: func(ctx context.Context, active *source) *source { return w.pollDemandLease(ctx, active, &objects) },
		onStart: func(s *state) {
			w.demandPublisher.Observed = lease.Observed{}
			s.nodes.StartMeasuredTimeout(s.now)
		},
		interestOf: func(s *state) interest { return interest{isNeeded: s.nodes.NeedsMeasured()} }, drop: (*state).dropDemands,
		onSourceChange: func(resource string) {
			if resource == "" {
				w.options.OnDemandRenewed(time.Time{})
			}
		},
	}
}

// pollDemandLease reads the Lease, processes its state, and returns the source as soon as there is a publisher. If the
// API server does not respond, the last known state stays active without limit.
func (w *Watcher) pollDemandLease(ctx context.Context, active, objects *source) *source {
	if err := w.demandPublisher.read(ctx); err != nil {
		w.options.Log.Debug("failed to read a Lease; retrying", "error", err)
		return active
	}
	leaseState, isNew := demandState(&w.demandPublisher.Observed), false
	w.change(func(s *state) {
		isNew = s.demands.lease != leaseState
		s.setDemandLease(leaseState)
	})
	w.options.OnDemandRenewed(w.demandPublisher.RenewedAt())
	if isNew {
		w.logDemandState(leaseState)
	}
	switch {
	case leaseState != model.DemandUnavailable:
		return objects
	case active == nil:
		return &source{}
	}
	return active
}

// demandState returns the state of demand according to a Lease that was read.
func demandState(observed *lease.Observed) model.DemandState {
	switch {
	case !observed.Exists():
		return model.DemandUnavailable
	case observed.IsFresh(v1alpha1.DemandFreshFor):
		return model.DemandActive
	}
	return model.DemandStale
}

// logDemandState logs the state of the Lease.
func (w *Watcher) logDemandState(leaseState model.DemandState) {
	log := w.options.Log.With("lease", w.demandPublisher.name.String())
	age := w.demandPublisher.Age().Round(time.Second)
	switch leaseState {
	case model.DemandUnknown:
	case model.DemandUnavailable:
		log.Warn(string(leaseState.AssumedReason()))
	case model.DemandStale:
		log.Warn(string(leaseState.AssumedReason()), "age", age)
	case model.DemandActive:
		log.Info("planning with measured demand", "age", age)
	}
}

// loadDemands loads measured demand, if a Service needs it.
func (w *Watcher) loadDemands(ctx context.Context, s *state) error {
	if !s.nodes.NeedsMeasured() {
		return nil
	}
	leaseState, renewal, err := readDemandLease(ctx, w.listWatches.leases, w.options.TopologyNamespace)
	if err != nil {
		return err
	}
	if backlog, err := demandBacklog(renewal); err != nil {
		w.options.Log.Warn("ignoring which measured demand waits for the publisher", "lease", w.demandPublisher.name.String(), "error", err)
	} else {
		s.change.DemandBacklog = &backlog
	}
	if leaseState != model.DemandActive {
		w.options.Log.Warn(string(leaseState.AssumedReason()))
	}
	s.setDemandLease(leaseState)
	if leaseState == model.DemandUnavailable {
		return nil
	}
	s.replace(convert.ServiceDemands, nil)
	return w.newStream(w.newRequest(convert.ServiceDemands, convert.ServiceDemands.Resource)).load(ctx, s)
}

// readDemandLease reads the publisher's Lease once. If reading it is forbidden, it returns model.DemandActive: the
// caller has the right to list ServiceDemands, and proxies probably may read the Lease.
func readDemandLease(ctx context.Context, leases rest.Interface, namespace string) (model.DemandState, lease.Renewal, error) {
	renewal, err := lease.Get(ctx, leases, namespace, v1alpha1.DemandLeaseName)
	switch {
	case apierrors.IsForbidden(err):
		return model.DemandActive, lease.Renewal{}, nil
	case err != nil:
		return model.DemandUnknown, lease.Renewal{}, err
	}
	var observed lease.Observed
	observed.Observe(time.Now(), renewal)
	return demandState(&observed), renewal, nil
}

// demandBacklog returns what waits for the publisher, according to its Lease.
func demandBacklog(renewal lease.Renewal) (model.DemandBacklog, error) {
	parsed, err := v1alpha1.ParseDemandBacklog(renewal.Annotations[v1alpha1.DemandBacklogAnnotation])
	if err != nil {
		return model.DemandBacklog{}, err
	}
	backlog := model.DemandBacklog{Waiting: parsed.Waiting, Since: map[model.ObjectName]time.Time{}}
	for service, seconds := range parsed.Services {
		namespace, name, _ := strings.Cut(service, "/")
		backlog.Since[model.ObjectName{Namespace: namespace, Name: name}] = renewal.At.Add(-time.Duration(seconds) * time.Second)
	}
	return backlog, nil
}

// demandGate determines whether measured demand counts.
type demandGate struct {
	lease        model.DemandState // according to the publisher's Lease
	availability availability      // of the objects
	delivered    model.DemandState // the result of both that was delivered last, or is about to be
}

// availability is the state of the list of all objects of a kind.
type availability int

const (
	unlisted    availability = iota
	unavailable              // the resource does not exist, or may not be listed
	listed
)

// isMeasured reports whether a Service is planned with measured demand; false for nil.
func isMeasured(service *model.Service) bool {
	return service != nil && !service.IsHeadless && service.Topology.MaxLoad > 0 && service.Topology.Measured
}

// state returns whether measured demand counts. Objects and Lease are useless without each other. DemandUnknown means
// that one of them was not read yet.
func (d *demandGate) state() model.DemandState {
	switch {
	case d.lease == model.DemandUnavailable || d.availability == unavailable:
		return model.DemandUnavailable
	case d.availability == listed:
		return d.lease
	}
	return model.DemandUnknown
}

// setDemandLease processes the state of the publisher's Lease.
func (s *state) setDemandLease(leaseState model.DemandState) {
	s.demands.lease = leaseState
	s.resolveDemandState()
	s.deliverUnblocked()
}

// resolveDemandState delivers whether measured demand counts, as soon as that is known, and unblocks Services.
func (s *state) resolveDemandState() {
	if resolved := s.demands.state(); resolved != model.DemandUnknown {
		s.deliverDemandState(resolved)
	}
}

// deliverDemandState delivers whether measured demand counts, if that has changed.
func (s *state) deliverDemandState(resolved model.DemandState) {
	if resolved != s.demands.delivered {
		s.demands.delivered, s.change.DemandState = resolved, &resolved
	}
	s.nodes.SetMeasured(resolved != model.DemandUnknown)
}

// dropDemands drops measured demand unless a Service needs it again. It reports whether it did.
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
