package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/folder"
)

// origin names where the objects come from, for messages.
func (f *stateFlags) origin() string { return cmp.Or(f.manifests, "the cluster") }

// connection is how the API server is reached.
func (f *stateFlags) connection() kube.Connection {
	from := f.settings.Connection
	return kube.Connection{
		Kubeconfig:         from.Kubeconfig,
		Server:             f.master,
		AsKubectl:          f.asKubectl,
		Context:            f.context,
		QPS:                from.QPS,
		Burst:              from.Burst,
		ContentType:        from.ContentType,
		AcceptContentTypes: from.AcceptContentTypes,
		UserAgent:          "vicinity-proxy/" + thisBuild().Version,
	}
}

// connect returns the cluster, and where its API server is reached. Nothing is asked yet.
func (f *stateFlags) connect(log *slog.Logger) (*cluster.Watcher, *kube.Dialled, error) {
	config, err := f.connection().Config()
	if err != nil {
		return nil, nil, err
	}
	dialled := kube.NewDialled(config)
	watcher, err := cluster.New(config, cluster.Options{
		View: f.view(), Log: log, NodeTopology: cluster.NodeTopology(f.topology.source), TopologyNamespace: f.topology.namespace,
		Proxies: f.topology.proxyService(), TopologyFrom: func(resource string) { f.nodesFrom = resource },
	})
	return watcher, dialled, err
}

// load reads everything once. What had to be left out is a warning: everything else can still be answered.
func (f *stateFlags) load(ctx context.Context, stderr io.Writer, nodes cluster.Nodes) (model.Change, error) {
	update, err := f.loadOnce(ctx, stderr, nodes)
	if err != nil {
		return model.Change{}, err
	}
	for _, problem := range update.Refused {
		fmt.Fprintf(stderr, "warning: %s\n", problem)
	}
	return update.Change.WithoutEnded(time.Now()), nil
}

func (f *stateFlags) loadOnce(ctx context.Context, stderr io.Writer, nodes cluster.Nodes) (convert.Update, error) {
	if f.manifests == "" {
		log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		kube.LogTo(log)
		cluster, dialled, err := f.connect(log)
		if err != nil {
			return convert.Update{}, fmt.Errorf("connect to the API server: %w", err)
		}
		update, err := cluster.Load(ctx, nodes)
		update.Change.APIServers = dialled.Addrs()
		return update, err
	}
	folder := folder.Folder{View: f.view()}
	f.nodesFrom = model.FromNodes
	update, err := folder.Load(f.manifests)
	if err != nil {
		return convert.Update{}, fmt.Errorf("load manifests: %w", err)
	}
	return update, nil
}

func (f *stateFlags) view() convert.View {
	return convert.View{Node: f.node, ServiceProxyName: f.serviceProxyName, DefaultMaxLoad: f.maxLoad, WithHeadless: f.withHeadless}
}

// warnOfUnknownNode warns of a node without a Node object: its labels are unknown, so the answer may differ from that
// of a proxy there.
func (f *stateFlags) warnOfUnknownNode(stderr io.Writer, nodes map[string]*model.Node) {
	if nodes[f.node] == nil {
		fmt.Fprintf(stderr, "warning: there is no Node %q in %s, so its labels are unknown; --node chooses another one\n", f.node, f.origin())
	}
}

// readObjects reads everything once, as it is written: from a folder, or without one from the cluster. What had to be left
// out is a warning. read is told of progress; it may be nil.
func readObjects(
	ctx context.Context, stderr io.Writer, manifests string, connection kube.Connection, read func(what string, objects int),
) (convert.Objects, error) {
	if manifests == "" {
		kube.LogTo(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
		config, err := connection.Config()
		if err != nil {
			return convert.Objects{}, fmt.Errorf("connect to the API server: %w", err)
		}
		return cluster.Objects(ctx, config, read)
	}
	objects, problems, err := folder.Objects(manifests, read)
	if err != nil {
		return convert.Objects{}, fmt.Errorf("load manifests: %w", err)
	}
	for _, problem := range problems {
		fmt.Fprintf(stderr, "warning: %s\n", problem)
	}
	return objects, nil
}
