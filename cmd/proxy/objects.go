package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// requestTimeout is the timeout of a page, if a command lists once.
const requestTimeout = time.Minute

// connection returns the connection to the API server.
func (f *stateFlags) connection() kube.Connection {
	settings := f.settings.Connection
	return kube.Connection{
		Kubeconfig:         settings.Kubeconfig,
		Server:             f.master,
		AsKubectl:          f.asKubectl,
		Context:            f.context,
		QPS:                settings.QPS,
		Burst:              settings.Burst,
		ContentType:        settings.ContentType,
		AcceptContentTypes: settings.AcceptContentTypes,
		UserAgent:          "vicinity-proxy/" + thisBuild().Version,
	}
}

// clientLog returns the log of a command that uses an API server, and redirects client-go's log to it.
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

// connect returns the cluster and the tracker of its API server's addresses. It sends no request.
func (f *stateFlags) connect(log *slog.Logger) (*apiserver.Watcher, *kube.PeerTracker, error) {
	config, err := f.onceConnection().Config()
	if err != nil {
		return nil, nil, unreadableError{err}
	}
	peers := kube.NewPeerTracker(config)
	view := f.view()
	view.Proxies = f.topology.proxyService()
	watcher, err := apiserver.New(config, apiserver.Options{
		View: view, Log: log, NodeTopology: apiserver.NodeTopology(f.topology.source), TopologyNamespace: f.topology.namespace,
		OnTopologySource: func(resource string) { f.topologySource = resource }, LastKnownGood: f.lastKnownGood,
	})
	return watcher, peers, err
}

// exitIncomplete is the exit status of a command whose output is incomplete, because a requested object could not be
// read or is invalid.
const exitIncomplete = 2

// load reads everything once. Invalid objects cause a warning and are stored in rejected; the command still handles all
// others.
func (f *stateFlags) load(ctx context.Context, stderr io.Writer, nodes apiserver.Nodes) (model.Change, error) {
	update, err := f.loadOnce(ctx, stderr, nodes)
	if err != nil {
		return model.Change{}, err
	}
	f.invalid = slices.DeleteFunc(update.NewProblems, func(p model.Finding) bool { return !p.Code.IsInvalidInput() })
	printWarnings(stderr, f.invalid)
	f.warnOfMissingSlices(stderr)
	f.isEmptyCluster = f.manifests == "" && f.serviceProxyName == "" && len(update.Change.Services)+len(f.invalid) == 0
	return update.Change, nil
}

func (f *stateFlags) loadOnce(ctx context.Context, stderr io.Writer, nodes apiserver.Nodes) (convert.Update, error) {
	if f.manifests == "" {
		cluster, peers, err := f.connect(clientLog(stderr))
		if err != nil {
			return convert.Update{}, fmt.Errorf("connect to the API server: %w", err)
		}
		update, err := cluster.Load(ctx, nodes)
		if err == nil && update.Change.Nodes[f.node] == nil {
			f.otherNodes, _ = cluster.NodeNames(ctx) // if it fails, the error about the node has no suggestion
		}
		update.Change.APIServers = peers.Addrs()
		return update, err
	}
	folder := manifests.Folder{View: f.view(), LastKnownGood: f.lastKnownGood}
	f.topologySource = model.TopologyFromNodes
	update, err := f.loadInto(&folder)
	if err != nil {
		return convert.Update{}, err
	}
	f.inventory = folder.Inventory()
	return update, nil
}

// warnOfMissingSlices prints a warning if the manifests have no EndpointSlices for their Services, or some of an old
// version.
func (f *stateFlags) warnOfMissingSlices(stderr io.Writer) {
	var missing string
	if missing, f.lacksSlices = f.inventory.MissingSlices(f.origin()); missing != "" {
		sanitize.Fprintf(stderr, "warning: %s\n", missing)
	}
}

// noServiceMessage returns, after load, a message if there is nothing to decide. For manifests it also names what else they
// contain, and how to get Services. It is empty if there is a Service, even an invalid one or one of another proxy.
func (f *stateFlags) noServiceMessage() string {
	if f.inventory != nil {
		return f.inventory.MissingKinds(f.origin(), "there is nothing to decide", convert.Services)
	}
	if f.isEmptyCluster {
		return "there is no Service in the cluster, so there is nothing to decide"
	}
	return ""
}

// incompleteError returns exitIncomplete if something is missing in the output.
func (f *stateFlags) incompleteError(query explain.Query) error {
	if f.lacksSlices {
		return cli.ExitError(exitIncomplete)
	}
	return incompleteError(f.invalid, query)
}

func (f *stateFlags) view() convert.View {
	return convert.View{
		Node: f.node, NodeAddress: f.settings.NodeAddress, ServiceProxyName: f.serviceProxyName, WithoutExternalIPs: !f.settings.ExternalIPs,
		DefaultMaxLoad: f.maxLoad, DefaultMeasured: f.measured, WithHeadless: f.withHeadless,
	}
}

// checkNode checks that the node is known. Manifests without any Node only cause a warning: the node then has no
// labels.
func (f *stateFlags) checkNode(stderr io.Writer, known []string) error {
	if slices.Contains(known, f.node) {
		return nil
	}
	if len(known) == 0 && f.manifests != "" {
		consequence := fmt.Sprintf("the labels of %q are unknown, and no endpoint is near it", f.node)
		sanitize.Fprintf(stderr, "warning: %s\n", f.inventory.MissingKinds(f.origin(), consequence, convert.Nodes))
		return nil
	}
	suggestion := cmp.Or(explain.DidYouMean(f.node, known), "; --node chooses one of "+explain.ListOrCount(known))
	return fmt.Errorf("there is no Node %q in %s%s", f.node, f.origin(), suggestion)
}

// nodeNames returns the sorted names of all known Nodes, after load.
func (f *stateFlags) nodeNames(nodes map[string]*model.Node) []string {
	names := slices.Clone(f.otherNodes)
	for name, node := range nodes {
		if node != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// printWarnings prints which objects and values are ignored, and why.
func printWarnings(stderr io.Writer, findings []model.Finding) {
	for _, sentence := range convert.Messages(findings) {
		sanitize.Fprintf(stderr, "warning: %s\n", sentence)
	}
}

// incompleteError returns exitIncomplete if an object is missing in the output. A Service counts only if it was
// requested. Any other object always counts: an invalid EndpointSlice may belong to any Service.
func incompleteError(findings []model.Finding, query explain.Query) error {
	for _, finding := range findings {
		if !finding.IsRejection() {
			continue // a part is ignored, but the object is used
		}
		if finding.Kind != convert.Services.Name || query.Covers(finding.Name) {
			return cli.ExitError(exitIncomplete)
		}
	}
	return nil
}

// readObjects reads everything once, as written: from manifests or else from the cluster. It prints a warning for each
// invalid object, and returns them. demandNamespace is the namespace of the publisher of ServiceDemands.
func readObjects(
	ctx context.Context, stderr io.Writer, source *manifestsFlag, connection kube.Connection, demandNamespace string,
) (convert.Objects, []model.Finding, error) {
	if source.manifests == "" {
		clientLog(stderr)
		config, err := connection.Config()
		if err != nil {
			return convert.Objects{}, nil, unreadableError{fmt.Errorf("connect to the API server: %w", err)}
		}
		objects, err := apiserver.Objects(ctx, config, demandNamespace)
		return objects, nil, err
	}
	objects, problems, err := source.objects()
	if err != nil {
		return convert.Objects{}, nil, err
	}
	printWarnings(stderr, problems)
	return objects, problems, nil
}
