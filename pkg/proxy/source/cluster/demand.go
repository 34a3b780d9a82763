package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// measuredDemand is followed while a Service is planned with measured demand: the publisher's Lease is read now and
// then, and once there is one, the ServiceDemands are followed. In a cluster where nobody publishes, only that Lease is
// read.
func measuredDemand(w *Watcher) *onDemand {
	objects := source{
		resource: convert.ServiceDemands.Resource, asked: []asked{w.ask(convert.ServiceDemands, convert.ServiceDemands.Resource)},
	}
	return &onDemand{
		choose: func(ctx context.Context, now *source) *source { return w.lookForDemand(ctx, now, &objects) },
		await: func(s *state) {
			w.demandLease.forget()
			s.awaitDemands()
		},
		wants: func(s *state) wanted { return wanted{isNeeded: s.needsDemands()} }, drop: (*state).dropDemands,
		tell: func(resource string) {
			if resource == "" {
				w.tellDemandRenewed(time.Time{})
			}
		},
	}
}

// lookForDemand reads the Lease, takes in what it says, and returns the objects as soon as there is a publisher. If the
// API server does not answer, the last known state stays in force without limit.
func (w *Watcher) lookForDemand(ctx context.Context, now, objects *source) *source {
	lease := &w.demandLease
	isNews, err := lease.read(ctx)
	if err != nil {
		w.options.Log.Debug("reading a Lease failed; trying again", "lease", lease.name(), "error", err)
		return now
	}
	w.change(func(s *state) { s.takeDemandLease(lease.state) })
	w.tellDemandRenewed(lease.renewedAt())
	if isNews {
		w.logDemand()
	}
	switch {
	case lease.state != model.DemandUnpublished:
		return objects
	case now == nil:
		return &source{}
	}
	return now
}

// logDemand logs what the Lease says.
func (w *Watcher) logDemand() {
	lease := &w.demandLease
	log := w.options.Log.With("lease", lease.name())
	switch lease.state {
	case model.DemandUnknown:
	case model.DemandUnpublished:
		log.Warn(string(lease.state.Assumed()))
	case model.DemandStale:
		log.Warn(string(lease.state.Assumed()), "age", lease.age.Round(time.Second))
	case model.DemandCounts:
		log.Info("planning with what was measured of Services", "age", lease.age.Round(time.Second))
	}
}

func (w *Watcher) tellDemandRenewed(at time.Time) {
	if w.options.DemandRenewed != nil {
		w.options.DemandRenewed(at)
	}
}

// loadDemands loads what was measured, if a Service needs it.
func (w *Watcher) loadDemands(ctx context.Context, s *state) error {
	if !s.needsDemands() {
		return nil
	}
	now, err := demandStateNow(ctx, w.demandLease.leases, w.demandLease.namespace)
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
	lease, err := getLease(ctx, leases, namespace, servicedemand.LeaseName)
	switch {
	case apierrors.IsForbidden(err):
		return model.DemandCounts, nil
	case apierrors.IsNotFound(err):
		return model.DemandUnpublished, nil
	case err != nil:
		return model.DemandUnknown, fmt.Errorf("reading Lease %s/%s: %w", namespace, servicedemand.LeaseName, err)
	case lease.Spec.RenewTime == nil:
		return model.DemandUnpublished, nil
	}
	var once demandLease
	once.take(lease.Spec.RenewTime.Time, time.Now())
	return once.state, nil
}

// demandLease is the Lease of the publisher of ServiceDemands, as one proxy sees it. It is for one goroutine.
type demandLease struct {
	leases    rest.Interface
	namespace string

	state   model.DemandState
	renewed time.Time // as the Lease said last
	// at is when it said so, by our own clock; age is how long ago the renewal was at that time.
	at  time.Time
	age time.Duration
	// isMissed: there was a Lease, and the last look found none. An API server that starts may forbid for a moment what it
	// otherwise allows, so only two such looks in a row count.
	isMissed bool
}

// longestGap is the most that the time between two looks adds to the age of a Lease that was not renewed: looks are
// half a minute apart, and while the API server was away nobody could renew it.
const longestGap = time.Minute

func (l *demandLease) name() string {
	return model.ObjectName{Namespace: l.namespace, Name: servicedemand.LeaseName}.String()
}

// read reads the Lease, and reports whether it has changed. An error leaves everything as it was.
func (l *demandLease) read(ctx context.Context) (isNews bool, err error) {
	before := l.state
	lease, err := readLease(ctx, l.leases, l.namespace, servicedemand.LeaseName)
	switch {
	case err != nil:
		return false, err
	case lease == nil && !l.isMissed && !l.at.IsZero():
		l.isMissed = true
	case lease == nil:
		l.forget()
		l.state = model.DemandUnpublished
	default:
		l.take(lease.Spec.RenewTime.Time, time.Now())
	}
	return l.state != before, nil
}

// take takes in when the Lease was renewed, as just read. At first, and when it goes back, we must trust the other
// machine's clock; after that a new renewal must have come after our last look.
func (l *demandLease) take(renewed, now time.Time) {
	age, gap := max(0, now.Sub(renewed)), now.Sub(l.at)
	switch {
	case l.at.IsZero() || renewed.Before(l.renewed):
		l.age = age
	case renewed.After(l.renewed):
		l.age = min(age, gap)
	default:
		l.age += min(gap, longestGap)
	}
	l.renewed, l.at, l.isMissed = renewed, now, false
	if l.state = model.DemandCounts; l.age >= servicedemand.GoodFor {
		l.state = model.DemandStale
	}
}

// renewedAt is when the Lease was renewed last, by our own clock; zero if unknown.
func (l *demandLease) renewedAt() time.Time {
	if l.at.IsZero() {
		return time.Time{}
	}
	return l.at.Add(-l.age)
}

// forget starts anew.
func (l *demandLease) forget() { *l = demandLease{leases: l.leases, namespace: l.namespace} }
