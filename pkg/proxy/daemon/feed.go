package daemon

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/condition"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// feed passes changes of objects to the proxy, and their findings to the reporters.
type feed struct {
	*common
	barrier  *startupBarrier
	reporter eventReporter
	findings *findings
	// condition is nil if the Node's condition is not written.
	condition *condition.Writer

	started   bool // objects have been delivered
	localNode localNodeState
}

// deliver processes an update. It returns when the proxy has received the change, so that later changes are merged into
// one.
func (f *feed) deliver(ctx context.Context, update convert.Update) {
	f.findings.change(update.NewProblems, update.ResolvedProblems)
	f.warn(update.Change)
	f.updateEligibility(update.Change)
	f.started = true
	f.barrier.send(ctx, fromObjects, update.Change)
}

// warn logs probable mistakes: those in the settings once, and those in this Node whenever it changes. It also logs if
// the Node is missing at the start, or was deleted.
func (f *feed) warn(change model.Change) {
	if !f.started {
		for _, sentence := range config.NftWarnings(f.config) {
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

// localNodeState is the state of this node that was last reported to status.
type localNodeState struct {
	node       *model.Node
	evacuation *model.Demotion // nil if it is not being evacuated
}

// updateEligibility reports to status whether load balancers may send connections through this node, without a sync.
func (f *feed) updateEligibility(change model.Change) {
	node, nodeChanged := change.Nodes[f.options.Node]
	evacuation, evacuationChanged := change.Demotions[model.DemotionKey{Node: f.options.Node, Reason: model.Evacuated}]
	if nodeChanged || !f.started {
		f.localNode.node = node
		f.condition.Recheck()
	}
	if evacuationChanged {
		f.reportEvacuation(evacuation)
		f.localNode.evacuation = evacuation
	}
	if nodeChanged || evacuationChanged || !f.started {
		f.status.SetNodeEligibility(f.localNode.eligibility())
	}
}

// reportEvacuation reports that the evacuation of this node started or ended, or that its deadline changed.
func (f *feed) reportEvacuation(current *model.Demotion) {
	before := f.localNode.evacuation
	switch {
	case before == nil && current != nil, before != nil && current != nil && before.EndText() != current.EndText():
		f.log.Info("this node is being evacuated: its endpoints get no new connections where others may serve", "until", current.EndText())
		f.reporter.report(events.Evacuated(f.options.Node, current))
	case before != nil && current == nil:
		f.log.Info("the evacuation of this node ended")
		f.reporter.report(events.Evacuated(f.options.Node, nil))
	}
}

// eligibility reports whether load balancers may send new connections through the node; if not, reason is set.
func (n localNodeState) eligibility() (eligible bool, reason string) {
	switch {
	case n.node == nil:
		return false, "there is no Node object of this name"
	case n.node.IneligibleReason != "":
		return false, n.node.IneligibleReason
	case n.evacuation != nil:
		return false, "it is being evacuated until " + n.evacuation.EndText()
	}
	return true, ""
}
