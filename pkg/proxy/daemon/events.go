package daemon

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// eventReporter reports to cluster users, as Events on their objects, what is also logged. Without a recorder, as with
// a manifest directory, it reports nothing.
type eventReporter struct {
	node     string
	recorder *events.Recorder
	cluster  *apiserver.Watcher
}

// newEvents returns the component that sends the Events. The first Event reports the start.
func newEvents(c *common, reporter eventReporter) component {
	if reporter.recorder == nil {
		return component{}
	}
	return component{run: func(ctx context.Context) error {
		reporter.report(events.Started(c.options.Node, c.options.Build.Version))
		return reporter.recorder.Run(ctx)
	}}
}

func (r eventReporter) report(event events.Event) {
	if r.recorder != nil {
		r.recorder.Report(event)
	}
}

// reportFindings reports findings about objects, but not those about other Nodes: their own proxies report them.
func (r eventReporter) reportFindings(found []model.Finding) {
	if r.recorder == nil {
		return
	}
	groupOf := func(f model.Finding) fault { return fault{subject: f.Subject(), code: f.Code} }
	groups := map[fault][]model.Finding{}
	for _, finding := range found {
		groups[groupOf(finding)] = append(groups[groupOf(finding)], finding)
	}
	for _, first := range found {
		all, isFirst := groups[groupOf(first)]
		delete(groups, groupOf(first))
		if !isFirst || first.Name == (model.ObjectName{}) || first.Kind == convert.NodeKind && first.Name.Name != r.node {
			continue
		}
		for _, event := range events.Findings(r.reference(first), r.node, all) {
			r.report(event)
		}
	}
}

// reference returns the reference to the object of a finding with which kubectl describe finds the Events about it.
func (r eventReporter) reference(finding model.Finding) events.Reference {
	if finding.Kind == convert.NodeKind {
		return events.Node(finding.Name.Name)
	}
	uid := finding.UID
	if uid == "" {
		uid = r.cluster.UID(convert.Services, finding.Name) // syncs do not know it; all their findings are about Services
	}
	return events.Reference{Kind: finding.Kind, Namespace: finding.Name.Namespace, Name: finding.Name.Name, UID: uid}
}
