package main

import (
	"fmt"
	"io"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/source"
)

// load reads the manifests once. What had to be left out is a warning: everything else can still be answered.
func (f *stateFlags) load(stderr io.Writer) (model.Change, error) {
	var folder source.Folder
	update, err := folder.Load(f.manifests)
	if err != nil {
		return model.Change{}, fmt.Errorf("load manifests: %w", err)
	}
	for _, problem := range update.Problems {
		fmt.Fprintf(stderr, "warning: %s\n", problem)
	}
	return update.Change, nil
}

// warnOfUnknownNode says why an answer for a node without a Node object may not be the one that was hoped for.
func (f *stateFlags) warnOfUnknownNode(stderr io.Writer, nodes map[string]*model.Node) {
	if nodes[f.node] == nil {
		fmt.Fprintf(stderr, "warning: there is no Node %q in %s, so its labels are unknown; --node chooses another one\n", f.node, f.manifests)
	}
}
