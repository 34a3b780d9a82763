package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

const explainExamples = `  # every Service, from the point of view of node-a1
  proxy explain --manifests state --node node-a1

  # in the pod of a node, with the settings of its proxy
  kubectl -n kube-system exec vicinity-proxy-x7k2p -- /proxy explain shop/web

  # one port of one Service, with the addresses of the cluster's pods
  proxy explain --manifests state --node node-a1 --cluster-cidr 10.244.0.0/16,fd00:10:244::/56 shop/web:http

  # which nodes have no endpoint for a Service
  proxy explain --manifests state --all-nodes -o json shop/web | jq -r '.[] | select(.outcome != "balance") | .node, .alike.nodes[]?'

  # why does node-a1 not use this endpoint, pod or node, and what would change that?
  proxy explain --manifests state --node node-a1 shop/web --why 10.244.3.7

  # which nodes drop connections from external clients, and to which addresses
  proxy explain --manifests state --all-nodes -o json |
    jq -r '.[] | [.node, .alike.nodes[]?] as $nodes | .traffic[] | select(.from == "outside" and .outcome == "drop") |
      $nodes[], .frontends[]'`

func newExplain(flags *explainFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "explain [[NAMESPACE/]NAME[:PORT] | ADDRESS:PORT] [flags]",
		Short: "Print which endpoints each Service port uses on a node, and why",
		Long: `Print for each Service port and IP family what happens to a new connection on a node: the addresses that serve the
port, the outcome for each kind of client, the endpoints in use, the selected topology tier, the reason, and the excluded
endpoints by reason. Many with the same reason are counted, unless --all is given. JSON and YAML list them all.

internalTrafficPolicy governs the ClusterIP, and externalTrafficPolicy everything external (load-balancer IPs, external
IPs, and node ports, written *:30080). If externalTrafficPolicy is Local, connections from this node and from pods go to endpoints on
all nodes, and those from outside stay on this node. --detect-local-mode distinguishes pods from external clients; where it
cannot, as in a family without --cluster-cidr, pods count as outside. So give 'explain' the same flags as 'run'.

For a headless Service with topology keys it prints the DNS response to clients on the node, if the node's DNS cache
queries the proxy: first for the Service's addresses, then for each port.

Each reason is a sentence, followed by a [Code] that is stable between versions, for scripts and alerts. The kernel is
neither read nor changed: this is what 'proxy run' with the same manifests and flags would decide. If the node's proxy runs
on this machine, it is also queried for the Services that its kernel rejects, and for the nodes that do not reply to it
(--unreachable-node-mode). Where labels of other nodes affect a port, it names their source (--node-topology-source).

With ADDRESS:PORT it prints what happens to a connection to that address: a ClusterIP, an external address, a node port at
an address that the Node lists, or a node port on loopback, such as 127.0.0.1:30080 or [::1]:30080. Connections to a
ClusterIP are refused on a port that its Service does not define. Those to an address of a ServiceCIDR that is not a
ClusterIP are dropped.

--all-nodes explains Service by Service, and nodes with equal decisions once, from the point of view of the first: "on
node-1, node-4 and 331 more". In JSON 'alike' has their names, and what differs between them, such as the endpoints on the
node itself. Nodes that do not run Linux are skipped. 'forecast' summarizes all nodes.

PORT is a port's name or number. Without NAME it explains all Services, or those in the namespace given by -n. NAME without
NAMESPACE is in the namespace given by -n, or else in the namespace of the kubeconfig's context.

Exit status: 1 if the command failed, 2 if the command line is wrong, or if a requested object is invalid or could not be
read, so that it is missing from the output.`,
		Example:               explainExamples,
		Args:                  cli.MaxArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, args []string) error {
			flags.stdin = command.InOrStdin()
			if err := flags.readRunning(command.Context()); err != nil {
				return exitUnreadable(command, err)
			}
			query, queryErr := flags.requestedQuery(args)
			if flags.why != "" && query.Service.Name == "" && queryErr == nil {
				queryErr = errors.New("--why needs a Service, as in 'explain shop/web --why 10.244.3.7'")
			}
			if err := errors.Join(queryErr, flags.Validate()); err != nil {
				return cli.UsageError{Err: err}
			}
			err := exitUnreadable(command, runExplain(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), flags, query))
			if err == nil {
				err = flags.incompleteError(query)
			}
			return err
		},
	}
	flags.register(command.Flags())
	cli.Complete(command, "output", "text", "json", "yaml")
	return command
}

// explainFlags are the flags of explain.
type explainFlags struct {
	stateFlags
	namespaceFlags
	allNodes bool
	why      string
	all      bool
	output   string
}

func (f *explainFlags) register(flags *pflag.FlagSet) {
	f.stateFlags.register(flags, orStdin, clientSettings, nodePortSettings, []settingFlag{
		{
			"metrics-bind-address", "metricsBindAddress",
			"`IP:PORT` at which a running proxy is queried for its settings, and for the Services that the kernel rejects",
		},
	})
	f.topology.register(flags)
	f.namespaceFlags.register(flags)
	flags.BoolVar(&f.allNodes, "all-nodes", false, "explain for every Node, once for those with equal decisions")
	flags.BoolVar(&f.all, "all", false, "list every excluded endpoint; without it the text counts those with the same reason")
	flags.StringVar(&f.why, "why", "", "an endpoint's address, a pod's name or a node: print why the node does not use this `TARGET`, or "+
		"its share, and the smallest change after which it would")
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text, json or yaml")
}

// requestedQuery returns the query that the arguments state.
func (f *explainFlags) requestedQuery(args []string) (explain.Query, error) {
	if len(args) > 0 {
		if query, isFrontend := explain.ParseFrontend(args[0]); isFrontend {
			return query, nil
		}
	}
	return f.query(args, f.contextNamespace())
}

// Validate checks all flags and reports all errors at once.
func (f *explainFlags) Validate() error {
	var conflict error
	switch _, isGiven := f.givenText("hostnameOverride"); {
	case isGiven && f.allNodes:
		conflict = errors.New("--all-nodes and --node exclude each other")
	case f.why != "" && f.allNodes:
		conflict = errors.New("--why is about one node; it excludes --all-nodes")
	case !isGiven && !f.allNodes && f.asKubectl: // a user's machine is rarely a node
		conflict = errors.New("either --node NAME or --all-nodes is required")
	}
	return errors.Join(
		conflict, f.stateFlags.Validate(), f.topology.Validate(), cli.Choice("output", f.output, "text", "json", "yaml"),
	)
}

// contextNamespace returns the namespace of the kubeconfig's context; nil if no kubeconfig is read. The namespace of
// the proxy's own pod is never intended.
func (f *explainFlags) contextNamespace() func() (string, error) {
	connection := f.connection()
	connection.Kubeconfig, _ = f.givenText("clientConnection.kubeconfig")
	if f.manifests != "" || !f.asKubectl && connection.Kubeconfig == "" {
		return nil
	}
	return connection.Namespace
}

func runExplain(ctx context.Context, stdout, stderr io.Writer, flags *explainFlags, query explain.Query) error {
	flags.withHeadless = true
	if flags.why != "" {
		return runWhy(ctx, stdout, stderr, flags, query)
	}
	nodesToRead := apiserver.LocalNode
	if flags.allNodes {
		nodesToRead = apiserver.AllNodes
	}
	change, err := flags.load(ctx, stderr, nodesToRead)
	if err != nil {
		return err
	}
	missing := flags.noServiceMessage()
	if missing != "" && (query.Service.Name != "" || query.AddrPort.IsValid()) {
		return unreadableError{errors.New(missing)}
	}
	if settingsErr := flags.requireSettings(); settingsErr != nil && !flags.asKubectl {
		sanitize.Fprintf(stderr, "warning: settings without a flag have their defaults: %v\n", settingsErr)
	}
	nodes, err := flags.nodesToExplain(stderr, change.Nodes)
	if err != nil {
		return err
	}
	// No proxy needs to run here: without one, the output is what a proxy would decide.
	rejected := flags.running.kernelRejections(ctx)
	flags.running.warnOfUnreachable(stderr, nodes...)
	views := explain.NewViews(change, flags.settings.Tables(model.Families).NodePorts, query)
	stream := explain.NewStream(stdout, flags.output)
	for ports := range flags.portsOf(change, nodes, query, views, rejected) {
		if flags.output == "text" && !flags.all {
			explain.Condense(ports, flags.allNodes)
		}
		if err := stream.Write(ports); err != nil {
			return err
		}
	}
	if stream.Written == 0 && query != (explain.Query{}) {
		return flags.notFound(ctx, views.From(&model.Node{Name: nodes[0]}), query)
	}
	if err := stream.Close(); err != nil || stream.Written > 0 {
		if err == nil && flags.output == "text" && flags.allNodes {
			_, err = io.WriteString(stdout, equalNodesNote)
		}
		return err
	}
	sanitize.Fprintf(stderr, "proxy: %s\n", cmp.Or(missing, fmt.Sprintf("no Service in %s leads to endpoints", flags.origin())))
	return cli.ExitError(exitIncomplete)
}

// nodesToExplain returns the names of the nodes to explain.
func (f *explainFlags) nodesToExplain(stderr io.Writer, all map[string]*model.Node) ([]string, error) {
	if !f.allNodes {
		if err := f.checkNode(stderr, f.nodeNames(all)); err != nil {
			return nil, err
		}
		if node := all[f.node]; node != nil {
			warnIfNotLinux(stderr, node.Name, node.Labels)
		}
		return []string{f.node}, nil
	}
	nodes := linuxNodes(stderr, all)
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("explain for all nodes: there is no Node in %s", f.origin())
	case len(nodes) == 0:
		return nil, fmt.Errorf("explain for all nodes: no Node in %s runs Linux", f.origin())
	}
	return nodes, nil
}

// equalNodesNote ends the text for all nodes.
const equalNodesNote = "\nNodes with equal decisions are explained once, from the point of view of the first. --node NAME explains " +
	"one of " +
	"them, and --all lists each endpoint.\n"

// linuxNodes returns the sorted names of the nodes on which this proxy can run, and prints which are skipped.
func linuxNodes(stderr io.Writer, all map[string]*model.Node) []string {
	var linux, others []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if policy.IsLinux(all[name].Labels) {
			linux = append(linux, name)
		} else {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		sanitize.Fprintf(stderr, "proxy: skipped, because they do not run Linux (label %s) and this proxy does not run there: %s (%s)\n",
			policy.OSLabel, sanitize.Count(len(others), "Node"), explain.ListOrCount(others))
	}
	return linux
}

// warnIfNotLinux prints a warning if this proxy cannot run on a node with these labels.
func warnIfNotLinux(stderr io.Writer, node string, labels map[string]string) {
	if !policy.IsLinux(labels) {
		sanitize.Fprintf(stderr, "warning: node %s does not run Linux (%s=%s), so this proxy does not run there: the output does not "+
			"apply to its clients\n", node, policy.OSLabel, labels[policy.OSLabel])
	}
}

// portsOf explains a state from the point of view of the given nodes: several nodes Service by Service, and nodes with
// equal decisions once. The running proxy's own observations apply only to its node, which is therefore explained
// separately and first. An ADDRESS:PORT may match a rule on only some of the nodes.
func (f *explainFlags) portsOf(
	change model.Change, names []string, query explain.Query, views *explain.Views, rejected map[string]*explain.Rejection,
) iter.Seq[[]explain.PortReport] {
	return func(yield func([]explain.PortReport) bool) {
		var others []*model.Node
		for _, name := range names {
			node, demotions := cmp.Or(change.Nodes[name], &model.Node{Name: name}), f.running.demotions(name)
			hasOwnView := len(demotions.Demotions) > 0 || len(rejected) > 0 && f.running.runsOn(name)
			if len(names) > 1 && !hasOwnView {
				others = append(others, node)
				continue
			}
			nodeViews, clients := views, f.clients(change.Nodes[name])
			if hasOwnView {
				nodeViews = explain.NewViews(change.Merge(demotions), f.settings.Tables(model.Families).NodePorts, query)
			}
			if f.running.runsOn(name) {
				clients.Rejected = rejected
			}
			if !yield(nodeViews.Ports(clients, node)) {
				return
			}
		}
		views.All(others, f.clients)(yield)
	}
}

// notFound returns an error that names what is missing, a suggestion, or why the proxy does not serve the Service.
func (f *explainFlags) notFound(ctx context.Context, cluster *model.Cluster, query explain.Query) error {
	if query.Service.Name != "" && cluster.Service(query.Service) == nil {
		if slices.ContainsFunc(f.invalid, func(p model.Finding) bool {
			return p.IsRejection() && p.Kind == convert.ServiceKind && p.Name == query.Service
		}) {
			return unreadableError{fmt.Errorf("service %s is invalid: see the warning above", query.Service)}
		}
		if object := f.serviceObject(ctx, query.Service); object != nil {
			if reason := convert.NotServedReason(object, f.view()); reason != "" {
				return fmt.Errorf("there is nothing to explain about service %s: %s", query.Service, reason)
			}
		}
	}
	return explain.NotFound(cluster, query, f.origin())
}

// serviceObject returns the Service object unfiltered, even if another proxy serves it; nil if it does not exist or
// cannot be read.
func (f *stateFlags) serviceObject(ctx context.Context, name model.ObjectName) *corev1.Service {
	if f.manifests == "" {
		config, err := f.onceConnection().Config()
		if err != nil {
			return nil
		}
		service, _ := apiserver.Service(ctx, config, name) // if it fails, the Service counts as not found
		return service
	}
	objects, _, err := f.objects()
	if err != nil {
		return nil
	}
	for _, service := range objects.Services {
		if service.Namespace == name.Namespace && service.Name == name.Name {
			return service
		}
	}
	return nil
}
