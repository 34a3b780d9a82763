package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/folder"
)

// origin names where the objects come from, for messages.
func (f *stateFlags) origin() string { return cmp.Or(f.manifests, "the cluster") }

// requestTimeout is how long the API server may take to answer a command that lists once: for each page.
const requestTimeout = time.Minute

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

// clientLog returns the log of a command that asks an API server, and sends there what client-go has to say.
func clientLog(stderr io.Writer) *slog.Logger {
	log := cli.NewLogger(stderr, "text", slog.LevelWarn)
	kube.LogTo(log)
	return log
}

// onceConnection is connection for a command that lists once, page by page.
func (f *stateFlags) onceConnection() kube.Connection {
	connection := f.connection()
	connection.Timeout = requestTimeout
	return connection
}

// connect returns the cluster, and where its API server is reached. Nothing is asked yet.
func (f *stateFlags) connect(log *slog.Logger) (*cluster.Watcher, *kube.Dialled, error) {
	config, err := f.onceConnection().Config()
	if err != nil {
		return nil, nil, err
	}
	dialled := kube.NewDialled(config)
	watcher, err := cluster.New(config, cluster.Options{
		View: f.view(), Log: log, NodeTopology: cluster.NodeTopology(f.topology.source), TopologyNamespace: f.topology.namespace,
		Proxies: f.topology.proxyService(), TopologyFrom: func(resource string) { f.nodesFrom = resource },
		LastGood: f.lastGood,
	})
	return watcher, dialled, err
}

// exitUnread is the exit status of a command that could not read, or refused, what it was asked about. What it prints
// lacks that.
const exitUnread = 2

// load reads everything once. What had to be left out is a warning, and in refused: everything else can still be
// answered.
func (f *stateFlags) load(ctx context.Context, stderr io.Writer, nodes cluster.Nodes) (model.Change, error) {
	update, err := f.loadOnce(ctx, stderr, nodes)
	if err != nil {
		return model.Change{}, err
	}
	f.refused = update.Refused
	warnOf(stderr, f.refused)
	return update.Change.WithoutEnded(time.Now()), nil
}

func (f *stateFlags) loadOnce(ctx context.Context, stderr io.Writer, nodes cluster.Nodes) (convert.Update, error) {
	if f.manifests == "" {
		cluster, dialled, err := f.connect(clientLog(stderr))
		if err != nil {
			return convert.Update{}, fmt.Errorf("connect to the API server: %w", err)
		}
		update, err := cluster.Load(ctx, nodes)
		update.Change.APIServers = dialled.Addrs()
		return update, err
	}
	folder := folder.Folder{View: f.view(), LastGood: f.lastGood}
	f.nodesFrom = model.FromNodes
	update, err := folder.Load(f.manifests)
	if err != nil {
		return convert.Update{}, fmt.Errorf("load manifests: %w", err)
	}
	return update, nil
}

func (f *stateFlags) view() convert.View {
	return convert.View{
		Node: f.node, NodeAddress: f.settings.NodeAddress, ServiceProxyName: f.serviceProxyName, WithoutExternalIPs: !f.settings.ExternalIPs,
		DefaultMaxLoad: f.maxLoad, WithHeadless: f.withHeadless,
	}
}

// warnOfUnknownNode warns of a node without a Node object: its labels are unknown, so the answer may differ from that
// of a proxy there.
func (f *stateFlags) warnOfUnknownNode(stderr io.Writer, nodes map[string]*model.Node) {
	if nodes[f.node] == nil {
		printable.Fprintf(stderr, "warning: there is no Node %q in %s, so its labels are unknown; --node chooses another one\n",
			f.node, f.origin())
	}
}

// warnOf prints what is left out, and why.
func warnOf(stderr io.Writer, refused []convert.Problem) {
	for _, problem := range refused {
		printable.Fprintf(stderr, "warning: %s\n", problem)
	}
}

// incomplete ends a command with exitUnread if something is left out of what it printed. asked is the one Service that it
// was asked about; empty: all. Nothing but another Service is no part of the answer then: whose an EndpointSlice is that
// cannot be read, nobody knows.
func incomplete(refused []convert.Problem, asked model.ObjectName) error {
	for _, problem := range refused {
		if problem.Ignored {
			continue // the object is there
		}
		if asked == (model.ObjectName{}) || problem.Kind != convert.Services.Name || problem.Name == asked {
			return cli.Exit(exitUnread)
		}
	}
	return nil
}

// readObjects reads everything once, as it is written: from a folder, or without one from the cluster. What had to be left
// out is a warning, and returned. read is told of progress; it may be nil.
func readObjects(
	ctx context.Context, stderr io.Writer, manifests string, connection kube.Connection, read func(what string, objects int),
) (convert.Objects, []convert.Problem, error) {
	if manifests == "" {
		clientLog(stderr)
		config, err := connection.Config()
		if err != nil {
			return convert.Objects{}, nil, fmt.Errorf("connect to the API server: %w", err)
		}
		objects, err := cluster.Objects(ctx, config, read)
		return objects, nil, err
	}
	objects, problems, err := folder.Objects(manifests, read)
	if err != nil {
		return convert.Objects{}, nil, fmt.Errorf("load manifests: %w", err)
	}
	warnOf(stderr, problems)
	return objects, problems, nil
}
