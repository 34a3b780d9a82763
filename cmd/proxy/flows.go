package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/flows"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

func newFlows() *cobra.Command {
	var flags flowsFlags
	var proxyFlags runFlags
	command := &cobra.Command{
		Use:   "flows [[NAMESPACE/]NAME] [flags]",
		Short: "Print where this node's connections to Services go now, by endpoint, zone and topology key",
		Long: `Read the kernel's connection table once and print where this node's connections to Services go: 'explain' prints where they
may go, and 'flows' where they do.

Without NAME there is a line for each Service that has connections: first those with the most unreplied ones, then those with the
most to other zones. With NAME there is a line for each of its endpoints.

UNANSWERED   connections to which the endpoint has not replied. A few are normal; if they persist, the endpoint, its node or the
             path to it is broken. One-way UDP never has a reply.
OPEN         connections with a reply that have not ended
ENDING       connections that have ended, which conntrack keeps for up to two minutes
LOCALITY     where the endpoint is, seen from this node: same_node, same_zone, other_zone, or unknown
TIER         why connections go there: the first topology key of the Service that the endpoint matches on this node, * for any
             node, hint for hints of EndpointSlices, or none without any preference
(gone)       no longer an endpoint of the Service; such connections last until their client ends them
SENT         and RECEIVED: bytes of all of these connections, including those that have ended, from the client's point of view,
             with IP headers, if conntrack counts them

A connection belongs to the node that translates it, which is the client's node for pods. Connections from pods of other nodes are
listed there. Those that other programs translate are skipped, and so are node ports on loopback.

The Services are read from the same source as by this node's proxy, with the settings that it reports; all flags of 'proxy run' may
be given instead, and then no proxy needs to run. Outside of the proxy's pod, give a --kubeconfig of your own. Nothing is stored, and
nothing runs after the command ends. Root (CAP_NET_ADMIN) is needed.

Exit status: 1 if the command failed, 2 if the command line is wrong, or if a requested object is invalid or could not be read.`,
		Example: `  # on a node: which connections are unreplied, and which cross zones?
  sudo proxy flows --kubeconfig admin.conf

  # where do those to a Service go?
  sudo proxy flows --kubeconfig admin.conf shop/web

  # in the pod of a node, repeatedly
  kubectl -n kube-system exec vicinity-proxy-x7k2p -- /proxy flows shop/web --watch

  # the endpoints with unreplied connections
  proxy flows -o json | jq -r '.services[].endpoints[] | select(.unanswered > 0) | [.endpoint, .node, .unanswered] | @tsv'`,
		Args:                  cli.MaxArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, args []string) error {
			query, queryErr := flags.query(args, nil)
			if queryErr == nil && query.Port != "" {
				queryErr = errors.New("connections are listed for whole Services; omit the port")
			}
			if err := errors.Join(queryErr, flags.Validate()); err != nil {
				return cli.UsageError{Err: err}
			}
			proxyFlags.stdin = command.InOrStdin()
			return exitUnreadable(command,
				runFlows(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), &flags, &proxyFlags, query))
		},
	}
	proxyFlags.registerLikeRun(command.Flags())
	flags.register(command.Flags())
	cli.Complete(command, "output", "text", "json", "yaml")
	return command
}

// flowsFlags are the flags of flows.
type flowsFlags struct {
	namespaceFlags
	output string
	top    int
	watch  bool
}

func (f *flowsFlags) register(flags *pflag.FlagSet) {
	f.namespaceFlags.register(flags)
	flags.IntVar(&f.top, "top", 30, "`NUMBER` of lines in text output; 0 for all")
	flags.BoolVarP(&f.watch, "watch", "w", false, "print again every two seconds until stopped; with -o json one line each time")
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text, json or yaml")
}

// Validate checks all flags.
func (f *flowsFlags) Validate() error {
	errs := []error{cli.Choice("output", f.output, "text", "json", "yaml")}
	if f.top < 0 {
		errs = append(errs, fmt.Errorf("--top %d must be 0 or more", f.top))
	}
	if f.watch && f.output == "yaml" {
		errs = append(errs, errors.New("--watch prints text, or one line each time with -o json, but not YAML"))
	}
	return errors.Join(errs...)
}

// How often --watch scans conntrack, and how often it reloads the Services, which may mean listing all of them from an
// API server.
const (
	flowsInterval  = 2 * time.Second
	reloadInterval = 30 * time.Second
)

func runFlows(ctx context.Context, stdout, stderr io.Writer, flags *flowsFlags, proxyFlags *runFlags, query explain.Query) error {
	if err := proxyFlags.readLikeRun(ctx); err != nil {
		return err
	}
	table, err := conntrack.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = table.Close() }()
	ctx = cli.SignalContext(ctx)
	var snapshot *flows.Snapshot
	for nextReload := time.Now(); ; {
		if now := time.Now(); !now.Before(nextReload) {
			if snapshot, err = proxyFlags.newSnapshot(ctx, stderr, query); err != nil {
				return err
			}
			nextReload = now.Add(reloadInterval)
		}
		if err := snapshot.AddAll(ctx, table); err != nil {
			return err
		}
		report := snapshot.Report(proxyFlags.node)
		if err := flags.print(stdout, &report, query); err != nil || !flags.watch {
			return errors.Join(err, incompleteError(proxyFlags.invalid, query))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(flowsInterval):
		}
	}
}

// newSnapshot loads the state of the cluster, and returns a Snapshot that collects the connections of the requested
// Services.
func (f *runFlags) newSnapshot(ctx context.Context, stderr io.Writer, query explain.Query) (*flows.Snapshot, error) {
	change, err := f.load(ctx, stderr, apiserver.LocalNode)
	if err != nil {
		return nil, err
	}
	cluster := explain.ClusterView(change, f.node, f.settings.Tables(model.Families).NodePorts)
	if query.Service.Name != "" && cluster.Service(query.Service) == nil {
		if missing := f.noServiceMessage(); missing != "" {
			return nil, unreadableError{errors.New(missing)}
		}
		return nil, explain.NotFound(cluster, query, f.origin())
	}
	return flows.NewSnapshot(cluster, model.Families, query.Covers), nil
}

func (f *flowsFlags) print(to io.Writer, report *flows.Report, query explain.Query) error {
	switch {
	case f.output == "json" && f.watch:
		return json.NewEncoder(to).Encode(report)
	case f.output != "text":
		return explain.Print(to, f.output, report)
	}
	if f.watch {
		sanitize.Fprintf(to, "%s\n", time.Now().Format(time.TimeOnly))
	}
	if len(report.Services) == 0 {
		sanitize.Fprintf(to, "Node %s has no connection to %s.\n", report.Node, describeQuery(query))
		return nil
	}
	err := flows.Text(to, report, query.Service.Name != "", f.top)
	if err == nil && f.watch {
		sanitize.Fprintf(to, "\n")
	}
	return err
}

// describeQuery returns a description of the query, as part of a sentence.
func describeQuery(query explain.Query) string {
	switch {
	case query.Service.Name != "":
		return "service " + query.Service.String()
	case query.Service.Namespace != "":
		return "a Service in namespace " + query.Service.Namespace
	}
	return "a Service"
}
