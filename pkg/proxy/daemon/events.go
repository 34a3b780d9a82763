package daemon

import (
	"context"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/otherproxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// eventReporter reports to users of a cluster, as Events on their objects, what the log reports to its readers. Without a
// recorder, as with a folder of manifests, it reports nothing.
type eventReporter struct {
	node     string
	version  string // of this program
	recorder *events.Recorder
	cluster  *cluster.Watcher
}

// newEvents sends the Events, from that of the start on.
func newEvents(reporter eventReporter) part {
	if reporter.recorder == nil {
		return part{}
	}
	return part{run: func(ctx context.Context) error {
		reporter.report(events.Started(reporter.node, reporter.version))
		return reporter.recorder.Run(ctx)
	}}
}

func (r eventReporter) report(event events.Event) {
	if r.recorder != nil {
		r.recorder.Report(event)
	}
}

// found reports what does not work about objects. Each proxy reports only its own node: thousands see the others.
func (r eventReporter) found(found []model.Finding) {
	if r.recorder == nil {
		return
	}
	for len(found) > 0 {
		first := found[0]
		one := func(f model.Finding) bool { return f.Code == first.Code && f.Subject() == first.Subject() }
		alike := slices.DeleteFunc(slices.Clone(found), func(f model.Finding) bool { return !one(f) })
		found = slices.DeleteFunc(slices.Clone(found), one)
		if first.Name == (model.ObjectName{}) || first.Kind == convert.NodeKind && first.Name.Name != r.node {
			continue
		}
		for _, event := range events.Findings(r.reference(first), r.node, alike) {
			r.report(event)
		}
	}
}

// evacuated reports that the evacuation of this node begins; nil: that it is over.
func (r eventReporter) evacuated(evacuation *model.Avoid) {
	r.report(events.Evacuated(r.node, evacuation))
}

// parted reports that nodes cannot reach another one that is Ready.
func (r eventReporter) parted(node string) { r.report(events.Parted(node)) }

// foreignChange reports which process changed our tables.
func (r eventReporter) foreignChange(change nft.ForeignChange) {
	r.report(events.ForeignChange(r.node, change.Process, change.PID))
}

// otherProxy reports another service proxy on this node.
func (r eventReporter) otherProxy(finding otherproxy.Finding) {
	r.report(events.OtherProxy(r.node, finding.Says, finding.Do))
}

// reference refers to the object of a finding so that kubectl describe finds the Events about it.
func (r eventReporter) reference(finding model.Finding) events.Reference {
	if finding.Kind == convert.NodeKind {
		return events.Node(finding.Name.Name)
	}
	uid := finding.UID
	if uid == "" {
		uid = r.cluster.UID(convert.Services, finding.Name) // a sync does not know the UID, and all its findings are about Services
	}
	return events.Reference{Kind: finding.Kind, Namespace: finding.Name.Namespace, Name: finding.Name.Name, UID: uid}
}
