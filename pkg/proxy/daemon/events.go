package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/otherproxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/servicehealth"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// eventReporter reports to users of a cluster, as Events on their objects, what the log reports to its readers. It is
// nil with a folder of manifests, and then reports nothing.
type eventReporter struct {
	node     string
	version  string // of this program
	recorder *events.Recorder
	cluster  *cluster.Watcher
}

func (r *eventReporter) run(ctx context.Context) error {
	if r == nil {
		<-ctx.Done()
		return nil
	}
	r.recorder.Report(events.Started(r.node, r.version))
	return r.recorder.Run(ctx)
}

// refused reports an object that is left out, or counts without one of its labels.
func (r *eventReporter) refused(problem convert.Problem) {
	if r == nil || problem.Name == (model.ObjectName{}) || problem.Kind == convert.NodeKind && problem.Name.Name != r.node {
		return // each proxy speaks for its own node: thousands see the others
	}
	reason := problem.Reason
	if problem.Field != "" {
		reason = problem.Field + ": " + reason
	}
	event := events.Refused
	if problem.Ignored {
		event = events.Ignored
	}
	r.recorder.Report(event(reference(problem.Kind, problem.Name, problem.UID), reason))
}

// evacuated reports that the evacuation of this node begins; nil: that it is over.
func (r *eventReporter) evacuated(evacuation *model.Evacuation) {
	if r != nil {
		r.recorder.Report(events.Evacuated(r.node, evacuation))
	}
}

// leftOut reports the parts of an object that are left out.
func (r *eventReporter) leftOut(kind string, name model.ObjectName, parts []string) {
	if r != nil && len(parts) > 0 {
		r.recorder.Report(events.LeftOut(r.reference(kind, name), parts))
	}
}

// topologyIgnored reports an annotation without effect.
func (r *eventReporter) topologyIgnored(service model.ObjectName, ignored policy.Ignored) {
	if r != nil {
		r.recorder.Report(events.TopologyIgnored(r.reference(convert.ServiceKind, service), ignored))
	}
}

// refusedByKernel reports a Service that the kernel does not take.
func (r *eventReporter) refusedByKernel(refused proxy.Refused) {
	if r != nil {
		reference := r.reference(convert.ServiceKind, refused.Service)
		r.recorder.Report(events.RefusedByKernel(reference, r.node, refused.InForce, refused.Err))
	}
}

// conflicts reports frontends that belong to another Service.
func (r *eventReporter) conflicts(conflicts []proxy.Conflict) {
	if r == nil {
		return
	}
	for _, conflict := range conflicts {
		service := r.reference(convert.ServiceKind, conflict.Service)
		for _, lost := range conflict.Lost {
			if lost.APIServer {
				r.recorder.Report(events.FrontendIsAPIServer(service, r.node, lost.Frontend))
				continue
			}
			r.recorder.Report(events.FrontendConflict(service, lost.Frontend, lost.Owner))
		}
	}
}

// crowded reports Services with more endpoints than a Service can have.
func (r *eventReporter) crowded(services []model.ObjectName) {
	for _, service := range services {
		r.leftOut(convert.ServiceKind, service, []string{fmt.Sprintf(
			"endpoints: a Service can have %d in a family, its ports together", model.MaxPortEndpoints)})
	}
}

// unremembered reports Services whose clients are not remembered.
func (r *eventReporter) unremembered(services []model.ObjectName) {
	if r == nil {
		return
	}
	for _, service := range services {
		r.recorder.Report(events.AffinityIgnored(r.reference(convert.ServiceKind, service), r.node))
	}
}

// healthChecksNotServed reports the Services whose health checks are not answered here.
func (r *eventReporter) healthChecksNotServed(err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if r == nil || !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		if failure, ok := errors.AsType[*servicehealth.Failure](err); ok {
			r.recorder.Report(events.HealthCheckNotServed(r.reference(convert.ServiceKind, failure.Service), r.node, failure.Err))
		}
	}
}

// foreignChange reports which process changed our tables.
func (r *eventReporter) foreignChange(change nft.ForeignChange) {
	if r != nil && !change.Lost {
		r.recorder.Report(events.ForeignChange(r.node, change.Process, change.PID))
	}
}

// otherProxy reports another service proxy on this node.
func (r *eventReporter) otherProxy(finding otherproxy.Finding) {
	if r != nil {
		r.recorder.Report(events.OtherProxy(r.node, finding.Says, finding.Do))
	}
}

// reference refers to a Service or an EndpointSlice as it is now.
func (r *eventReporter) reference(kind string, name model.ObjectName) events.Reference {
	objects := convert.Services
	if kind == convert.EndpointSliceKind {
		objects = convert.EndpointSlices
	}
	return reference(kind, name, r.cluster.UID(objects, name))
}

// reference refers to an object so that kubectl describe finds the Events about it.
func reference(kind string, name model.ObjectName, uid string) events.Reference {
	if kind == convert.NodeKind {
		return events.Node(name.Name)
	}
	return events.Reference{Kind: kind, Namespace: name.Namespace, Name: name.Name, UID: uid}
}
