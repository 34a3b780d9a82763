package daemon

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/condition"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// feed passes on what the objects say: changes to the proxy, findings to people.
type feed struct {
	*common
	complete *completion
	reporter eventReporter
	findings *findings
	// condition is nil unless the Node is to say when its Services work.
	condition *condition.Writer

	started bool // the objects have been reported once
	own     ownNode
}

// deliver takes what the objects say. It returns when the proxy has taken the change, so that what arrives meanwhile
// comes as one change after it.
func (f *feed) deliver(ctx context.Context, update convert.Update) {
	f.findings.change(update.Refused, update.PutRight)
	f.warn(update.Change)
	f.judgeNode(update.Change)
	f.started = true
	f.complete.send(ctx, fromObjects, update.Change)
}

// warn logs what is probably a mistake: in the settings, once, and in this node; at the start also if there is no Node.
func (f *feed) warn(change model.Change) {
	if !f.started {
		for _, sentence := range config.TableWarnings(f.config) {
			f.log.Warn(sentence)
		}
	}
	node, changed := change.Nodes[f.options.Node]
	switch {
	case f.started && !changed:
		return
	case f.started && node == nil:
		f.log.Warn("this Node was deleted; keeping its last known labels and addresses", "node", f.options.Node)
		return
	case node == nil:
		f.log.Warn("there is no Node with this name; its labels are unknown until one is created", "node", f.options.Node)
	}
	for _, sentence := range []string{config.NodePortWarning(f.config, node), config.PodWarning(f.config, node)} {
		if sentence != "" {
			f.log.Warn(sentence, "node", f.options.Node)
		}
	}
}

// ownNode is what health was told about this node.
type ownNode struct {
	node       *model.Node
	evacuation *model.Avoid // nil if it is not being evacuated
}

// judgeNode reports to health whether load balancers may send connections through this node. No sync decides that.
func (f *feed) judgeNode(change model.Change) {
	node, isNew := change.Nodes[f.options.Node]
	evacuation, isOther := change.Avoid[model.Against{Node: f.options.Node, Why: model.Evacuated}]
	if isNew || !f.started {
		f.own.node = node
		f.condition.LookAgain()
	}
	if isOther {
		f.reportEvacuation(evacuation)
		f.own.evacuation = evacuation
	}
	if isNew || isOther || !f.started {
		f.status.NodeEligibility(f.own.eligibility())
	}
}

// reportEvacuation says that the evacuation of this node begins, or ends.
func (f *feed) reportEvacuation(now *model.Avoid) {
	before := f.own.evacuation
	switch {
	case before == nil && now != nil, before != nil && now != nil && before.End() != now.End():
		f.log.Info("this node is being evacuated: its endpoints get no new connections where others may serve", "until", now.End())
		f.reporter.report(events.Evacuated(f.options.Node, now))
	case before != nil && now == nil:
		f.log.Info("the evacuation of this node is over")
		f.reporter.report(events.Evacuated(f.options.Node, nil))
	}
}

// eligibility says whether load balancers may send new connections through the node, and if not, why.
func (n ownNode) eligibility() (eligible bool, why string) {
	switch {
	case n.node == nil:
		return false, "there is no Node object of this name"
	case n.node.Leaving != "":
		return false, n.node.Leaving
	case n.evacuation != nil:
		return false, "it is being evacuated until " + n.evacuation.End()
	}
	return true, ""
}
