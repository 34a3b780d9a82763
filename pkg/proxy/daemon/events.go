package daemon

import (
	"context"
	"errors"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/servicehealth"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// eventTeller tells users of a cluster on their objects what the log tells its readers. Nobody is told of a folder of manifests: then
// it is nil.
type eventTeller struct {
	node     string
	version  string // of this program
	recorder *events.Recorder
	cluster  *cluster.Cluster
}

func (t *eventTeller) run(ctx context.Context) error {
	if t == nil {
		<-ctx.Done()
		return nil
	}
	t.recorder.Report(events.Started(t.node, t.version))
	return t.recorder.Run(ctx)
}

// refused tells of an object that is left out.
func (t *eventTeller) refused(problem convert.Problem) {
	if t == nil || problem.Name == (model.ObjectName{}) {
		return
	}
	reason := problem.Reason
	if problem.Field != "" {
		reason = problem.Field + ": " + reason
	}
	t.recorder.Report(events.Refused(reference(problem.Kind, problem.Name, problem.UID), reason))
}

// leftOut tells of the parts of an object that are left out.
func (t *eventTeller) leftOut(kind string, name model.ObjectName, parts []string) {
	if t != nil && len(parts) > 0 {
		t.recorder.Report(events.LeftOut(t.reference(kind, name), parts))
	}
}

// topologyIgnored tells of topology keys without effect.
func (t *eventTeller) topologyIgnored(service model.ObjectName, reason string) {
	if t != nil {
		t.recorder.Report(events.TopologyIgnored(t.reference(convert.ServiceKind, service), reason))
	}
}

// refusedByKernel reports a Service that the kernel does not take.
func (t *eventTeller) refusedByKernel(refused proxy.Refused) {
	if t != nil {
		reference := t.reference(convert.ServiceKind, refused.Service)
		t.recorder.Report(events.RefusedByKernel(reference, t.node, refused.InForce, refused.Err))
	}
}

// conflicts tells of frontends that belong to another Service.
func (t *eventTeller) conflicts(conflicts []proxy.Conflict) {
	if t == nil {
		return
	}
	for _, conflict := range conflicts {
		for _, lost := range conflict.Lost {
			t.recorder.Report(events.FrontendConflict(t.reference(convert.ServiceKind, conflict.Service), lost.Frontend, lost.Owner))
		}
	}
}

// healthChecksNotServed tells of the Services whose health checks are not answered here.
func (t *eventTeller) healthChecksNotServed(err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if t == nil || !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		if failure, ok := errors.AsType[*servicehealth.Failure](err); ok {
			t.recorder.Report(events.HealthCheckNotServed(t.reference(convert.ServiceKind, failure.Service), t.node, failure.Err))
		}
	}
}

// foreignChange tells who changed our tables.
func (t *eventTeller) foreignChange(change nft.ForeignChange) {
	if t != nil && !change.Lost {
		t.recorder.Report(events.ForeignChange(t.node, change.Process, change.PID))
	}
}

// reference refers to a Service or an EndpointSlice as it is now.
func (t *eventTeller) reference(kind string, name model.ObjectName) events.Reference {
	of := convert.Services
	if kind == convert.EndpointSliceKind {
		of = convert.EndpointSlices
	}
	return reference(kind, name, t.cluster.UID(of, name))
}

// reference refers to an object so that kubectl describe finds what is told about it.
func reference(kind string, name model.ObjectName, uid string) events.Reference {
	if kind == convert.NodeKind {
		return events.Node(name.Name)
	}
	return events.Reference{Kind: kind, Namespace: name.Namespace, Name: name.Name, UID: uid}
}
