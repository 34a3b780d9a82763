package daemon

import (
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// warn logs what a change brings that is not wrong, and hardly meant.
func (f *feed) warn(change model.Change) {
	if !f.started {
		for _, sentence := range config.TableWarnings(f.config) {
			f.log.Warn(sentence)
		}
	}
	f.warnOfNode(change)
	for _, name := range slices.SortedFunc(maps.Keys(change.Services), model.ObjectName.Compare) {
		f.warnOfService(name, change.Services[name])
	}
	for _, name := range slices.SortedFunc(maps.Keys(change.Slices), model.ObjectName.Compare) {
		var parts []string
		if slice := change.Slices[name]; slice != nil {
			parts = slice.LeftOut
		}
		f.warnOfLeftOut(convert.EndpointSliceKind, name, parts)
	}
}

// warnOfNode logs what this node lacks; at the start also if there is no Node.
func (f *feed) warnOfNode(change model.Change) {
	node, changed := change.Nodes[f.node]
	switch {
	case f.started && !changed:
		return
	case f.started && node == nil:
		f.log.Warn("the Node of this name is gone; what it said last stays in force", "node", f.node)
		return
	}
	if node == nil {
		f.log.Warn("there is no Node of this name; its labels are unknown until there is one", "node", f.node)
	}
	for _, sentence := range []string{config.NodePortWarning(f.config, node), config.PodWarning(f.config, node)} {
		if sentence != "" {
			f.log.Warn(sentence, "node", f.node)
		}
	}
}

func (f *feed) warnOfService(name model.ObjectName, service *model.Service) {
	if service == nil {
		service = &model.Service{} // nothing is left to say of it
	}
	f.warnOfLeftOut(convert.ServiceKind, name, service.LeftOut)
	for _, annotation := range policy.Annotations {
		var reasons []string
		if reason := service.Topology.WhyIgnored(annotation); reason != "" {
			reasons = append(reasons, reason)
		}
		for _, reason := range f.unsaid(about{kind: annotation, name: name}, reasons) {
			if f.budget.allows(f.log, about{kind: convert.ServiceKind, name: name}) {
				f.log.Warn("an annotation is ignored", "service", name.String(), "annotation", annotation, "reason", reason)
			}
			f.reporter.topologyIgnored(name, policy.Ignored{Annotation: annotation, Reason: reason})
		}
	}
}

// warnOfLeftOut logs each part of an object that cannot be served, once for as long as it is so.
func (f *feed) warnOfLeftOut(kind string, name model.ObjectName, parts []string) {
	parts = f.unsaid(about{kind: kind, name: name}, parts)
	for _, part := range parts {
		if !f.budget.allows(f.log, about{kind: kind, name: name}) {
			break
		}
		f.log.Warn("a part is left out; the rest is served", strings.ToLower(kind), name.String(), "part", part)
	}
	f.reporter.leftOut(kind, name, parts)
}

// unsaid returns those of the sentences about something that were not said of it last.
func (f *feed) unsaid(of about, sentences []string) []string {
	before := f.said[of]
	delete(f.said, of)
	if len(sentences) > 0 {
		f.said[of] = sentences
	}
	known := make(map[string]bool, len(before))
	for _, sentence := range before {
		known[sentence] = true
	}
	return slices.DeleteFunc(slices.Clone(sentences), func(sentence string) bool { return known[sentence] })
}
