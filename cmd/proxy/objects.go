package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/vicinity-proxy/vicinity/pkg/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/events"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/source"
)

// objects is where the cluster's objects come from: a folder of manifests, or an API server.
type objects interface {
	// Run delivers everything first, and then what changes, until ctx ends.
	Run(ctx context.Context, deliver func(source.Update)) error
}

// manifests is the folder as a source for the daemon.
type manifests struct{ *source.Manifests }

// Run is that of the folder, with what it was about in the error.
func (m manifests) Run(ctx context.Context, deliver func(source.Update)) error {
	if err := m.Manifests.Run(ctx, deliver); err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	return nil
}

// origin names where the objects come from, for messages.
func (f *stateFlags) origin() string { return cmp.Or(f.manifests, "the cluster") }

// connection is how the API server is reached.
func (f *stateFlags) connection() apiserver.Connection {
	from := f.settings.Connection
	return apiserver.Connection{
		Kubeconfig:         from.Kubeconfig,
		Server:             f.master,
		QPS:                from.QPS,
		Burst:              from.Burst,
		ContentType:        from.ContentType,
		AcceptContentTypes: from.AcceptContentTypes,
		UserAgent:          "vicinity-proxy/" + thisBuild().Version,
	}
}

// connect returns the cluster, and a recorder of Events for it. Nothing is asked yet.
func (f *stateFlags) connect(options apiserver.Options) (*apiserver.Cluster, *events.Recorder, error) {
	config, err := f.connection().Config()
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	options.Node, options.ServiceProxyName = f.node, f.serviceProxyName
	cluster, err := apiserver.New(config, options)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	recorder, err := events.Connect(config, f.node, options.Log)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return cluster, recorder, nil
}

// load reads everything once. What had to be left out is a warning: everything else can still be answered.
func (f *stateFlags) load(ctx context.Context, stderr io.Writer, nodes apiserver.Nodes) (model.Change, error) {
	update, err := f.loadOnce(ctx, stderr, nodes)
	if err != nil {
		return model.Change{}, err
	}
	for _, problem := range update.Problems {
		fmt.Fprintf(stderr, "warning: %s\n", problem)
	}
	return update.Change, nil
}

func (f *stateFlags) loadOnce(ctx context.Context, stderr io.Writer, nodes apiserver.Nodes) (source.Update, error) {
	if f.manifests == "" {
		log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		apiserver.LogTo(log)
		cluster, _, err := f.connect(apiserver.Options{Log: log})
		if err != nil {
			return source.Update{}, err
		}
		return cluster.Load(ctx, nodes)
	}
	var folder source.Folder
	update, err := folder.Load(f.manifests)
	if err != nil {
		return source.Update{}, fmt.Errorf("load manifests: %w", err)
	}
	return update, nil
}

// warnOfUnknownNode says why an answer for a node without a Node object may not be the one that was hoped for.
func (f *stateFlags) warnOfUnknownNode(stderr io.Writer, nodes map[string]*model.Node) {
	if nodes[f.node] == nil {
		fmt.Fprintf(stderr, "warning: there is no Node %q in %s, so its labels are unknown; --node chooses another one\n", f.node, f.origin())
	}
}
