package daemon

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// eventReporter reports to users of a cluster, as Events on their objects, what the log reports to its readers. Without a
// recorder, as with a folder of manifests, it reports nothing.
type eventReporter struct {
	node     string
	recorder *events.Recorder
	cluster  *apiserver.Watcher
}

// newEvents sends the Events, from that of the start on.
func newEvents(c *common, reporter eventReporter) part {
	if reporter.recorder == nil {
		return part{}
	}
	return part{run: func(ctx context.Context) error {
		reporter.report(events.Started(c.options.Node, c.options.Build.Version))
		return reporter.recorder.Run(ctx)
	}}
}

func (r eventReporter) report(event events.Event) {
	if r.recorder != nil {
		r.recorder.Report(event)
	}
}

// reportFindings reports what does not work about objects. Each proxy reports only its own node: thousands see the others.
func (r eventReporter) reportFindings(found []model.Finding) {
	if r.recorder == nil {
		return
	}
	kindOf := func(f model.Finding) fault { return fault{subject: f.Subject(), code: f.Code} }
	alike := map[fault][]model.Finding{}
	for _, finding := range found {
		alike[kindOf(finding)] = append(alike[kindOf(finding)], finding)
	}
	for _, first := range found {
		all, isFirst := alike[kindOf(first)]
		delete(alike, kindOf(first))
		if !isFirst || first.Name == (model.ObjectName{}) || first.Kind == convert.NodeKind && first.Name.Name != r.node {
			continue
		}
		for _, event := range events.Findings(r.reference(first), r.node, all) {
			r.report(event)
		}
	}
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
