package main

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// warn logs what a change brings that is not wrong, and hardly meant.
func (f *feed) warn(change model.Change) {
	if !f.started {
		for _, sentence := range ofSettings(f.config) {
			f.log.Warn(sentence)
		}
	}
	f.warnOfNode(change)
	for _, name := range slices.SortedFunc(maps.Keys(change.Services), model.ObjectName.Compare) {
		f.warnOfService(name, change.Services[name])
	}
	for _, name := range slices.SortedFunc(maps.Keys(change.Slices), model.ObjectName.Compare) {
		if slice := change.Slices[name]; slice != nil {
			f.warnOfLeftOut("endpointslice", name, slice.LeftOut)
		}
	}
}

// warnOfNode tells what this node lacks; at the start also if nothing is told of it.
func (f *feed) warnOfNode(change model.Change) {
	node, told := change.Nodes[f.node]
	switch {
	case f.started && !told:
		return
	case f.started && node == nil:
		f.log.Warn("the Node of this name is gone; what it said last stays in force", "node", f.node)
		return
	}
	if node == nil {
		f.log.Warn("there is no Node of this name; its labels are unknown until there is one", "node", f.node)
	}
	for _, sentence := range []string{ofNodePorts(f.config, node), ofPods(f.config, node)} {
		if sentence != "" {
			f.log.Warn(sentence, "node", f.node)
		}
	}
}

func (f *feed) warnOfService(name model.ObjectName, service *model.Service) {
	if service == nil {
		return
	}
	if service.Topology.Ignored != "" {
		f.log.Warn("an annotation is ignored", "service", name.String(), "annotation", policy.TopologyKeysAnnotation,
			"reason", service.Topology.Ignored)
	}
	f.warnOfLeftOut("service", name, service.LeftOut)
}

// warnOfLeftOut tells each part of an object that cannot be served.
func (f *feed) warnOfLeftOut(kind string, name model.ObjectName, parts []string) {
	for _, part := range parts {
		f.log.Warn("a part is left out; the rest is served", kind, name.String(), "part", part)
	}
}
