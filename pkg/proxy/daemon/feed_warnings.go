package daemon

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// warn logs what is probably a mistake: in the settings, once, and in this node.
func (f *feed) warn(change model.Change) {
	if !f.started {
		for _, sentence := range config.TableWarnings(f.config) {
			f.log.Warn(sentence)
		}
	}
	f.warnOfNode(change)
}

// warnOfNode logs what this node lacks; at the start also if there is no Node.
func (f *feed) warnOfNode(change model.Change) {
	node, changed := change.Nodes[f.options.Node]
	switch {
	case f.started && !changed:
		return
	case f.started && node == nil:
		f.log.Warn("this Node was deleted; keeping its last known labels and addresses", "node", f.options.Node)
		return
	}
	if node == nil {
		f.log.Warn("there is no Node with this name; its labels are unknown until one is created", "node", f.options.Node)
	}
	for _, sentence := range []string{config.NodePortWarning(f.config, node), config.PodWarning(f.config, node)} {
		if sentence != "" {
			f.log.Warn(sentence, "node", f.options.Node)
		}
	}
}
