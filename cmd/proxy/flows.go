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
	var like runFlags
	command := &cobra.Command{
		Use:   "flows [[NAMESPACE/]NAME] [flags]",
		Short: "Print where the connections to Services go from this node, now: by endpoint, zone and topology key",
		Long: `Read the kernel's connection table once and print where the connections go that this node leads to Services: 'explain' says
where they may go, and this says where they do.

Without NAME there is a line for each Service that has connections: first those with most that nobody answers, then those with
most to other zones. With NAME there is a line for each of its endpoints.

UNANSWERED   dials that the endpoint has not answered. A few come and go; if they stay, the endpoint, its node or the way to it is
             broken. One-way UDP is never answered.
OPEN         connections that were answered and go on
ENDING       connections that are over, which conntrack remembers for up to two minutes
LOCALITY     where the endpoint is, seen from this node: same_node, same_zone, other_zone, or unknown
TIER         why connections go there: the first topology key of the Service that the endpoint matches on this node, * for any
             node, hint for hints of EndpointSlices, or none: nothing keeps connections near
(gone)       it is no longer an endpoint of the Service; such connections last until their client ends them
SENT         and RECEIVED: bytes of all of these connections, those that are ending included, as the client sees them, with IP
             headers, if conntrack counts them

Connections are of the node that translates them: the client's, for pods. Those that pods of other nodes make to this one are
seen there. What other programs translate is passed over, and so are node ports on loopback.

The Services are read where the proxy of this node reads them, with the settings that it reports; all flags of 'proxy run' may be
given instead, and no proxy need run. Outside of the proxy's pod the API server needs a --kubeconfig of yours. Nothing is kept,
and nothing runs while nobody asks. Root (CAP_NET_ADMIN) is needed.

Exit status: 1 if there is no answer, 2 if the command line is wrong, or what was asked about was refused or could not be read.`,
		Example: `  # on a node: what do its connections wait for, and what crosses zones?
  sudo proxy flows --kubeconfig admin.conf

  # where do those of a Service go?
  sudo proxy flows --kubeconfig admin.conf shop/web

  # in the pod of a node, again and again
  kubectl -n kube-system exec vicinity-proxy-x7k2p -- /proxy flows shop/web --watch

  # the endpoints that leave dials unanswered
  proxy flows -o json | jq -r '.services[].endpoints[] | select(.unanswered > 0) | [.endpoint, .node, .unanswered] | @tsv'`,
		Args:                  cli.MaxArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, args []string) error {
			query, malformed := flags.query(args, nil)
			if malformed == nil && query.Port != "" {
				malformed = errors.New("connections are listed for whole Services; leave the port out")
			}
			if err := errors.Join(malformed, flags.Validate()); err != nil {
				return cli.UsageError{Err: err}
			}
			like.stdin = command.InOrStdin()
			return hasUnreadable(command,
				runFlows(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), &flags, &like, query))
		},
	}
	like.registerLikeRun(command.Flags())
	flags.register(command.Flags())
	cli.Complete(command, "output", "text", "json", "yaml")
	return command
}

// flowsFlags are the flags of flows.
type flowsFlags struct {
	namespaceFlags
	output       string
	top          int
	isContinuous bool
}

func (f *flowsFlags) register(flags *pflag.FlagSet) {
	f.namespaceFlags.register(flags)
	flags.IntVar(&f.top, "top", 30, "`NUMBER` of lines in text output; 0 for all")
	flags.BoolVarP(&f.isContinuous, "watch", "w", false, "print again every two seconds until stopped; with -o json one line each time")
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text, json or yaml")
}

// Validate checks all flags.
func (f *flowsFlags) Validate() error {
	errs := []error{cli.Choice("output", f.output, "text", "json", "yaml")}
	if f.top < 0 {
		errs = append(errs, fmt.Errorf("--top %d must be 0 or more", f.top))
	}
	if f.isContinuous && f.output == "yaml" {
		errs = append(errs, errors.New("--watch prints text, or with -o json one line each time; not YAML"))
	}
	return errors.Join(errs...)
}

// How often --watch scans conntrack, and how often it reloads the Services, which may mean listing all of them from an
// API server.
const (
	flowsEvery   = 2 * time.Second
	objectsEvery = 30 * time.Second
)

func runFlows(ctx context.Context, stdout, stderr io.Writer, flags *flowsFlags, like *runFlags, query explain.Query) error {
	if err := like.readLikeRun(ctx); err != nil {
		return err
	}
	table, err := conntrack.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = table.Close() }()
	ctx = cli.SignalContext(ctx)
	var reading *flows.Snapshot
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) {
			if reading, err = like.reading(ctx, stderr, query); err != nil {
				return err
			}
			next = now.Add(objectsEvery)
		}
		if err := reading.AddAll(ctx, table); err != nil {
			return err
		}
		report := reading.Report(like.node)
		if err := flags.print(stdout, &report, query); err != nil || !flags.isContinuous {
			return errors.Join(err, incomplete(like.rejected, query))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(flowsEvery):
		}
	}
}

// reading loads the state of the cluster, and returns a Snapshot that collects the connections of the requested
// Services.
func (f *runFlags) reading(ctx context.Context, stderr io.Writer, query explain.Query) (*flows.Snapshot, error) {
	change, err := f.load(ctx, stderr, apiserver.LocalNode)
	if err != nil {
		return nil, err
	}
	seen := explain.ClusterView(change, f.node, f.settings.Tables(model.Families).NodePorts)
	if query.Service.Name != "" && seen.Service(query.Service) == nil {
		if lack := f.noService(); lack != "" {
			return nil, unreadableError{errors.New(lack)}
		}
		return nil, explain.NotFound(seen, query, f.origin())
	}
	return flows.NewSnapshot(seen, model.Families, query.Covers), nil
}

func (f *flowsFlags) print(to io.Writer, report *flows.Report, query explain.Query) error {
	switch {
	case f.output == "json" && f.isContinuous:
		return json.NewEncoder(to).Encode(report)
	case f.output != "text":
		return explain.Print(to, f.output, report)
	}
	if f.isContinuous {
		sanitize.Fprintf(to, "%s\n", time.Now().Format(time.TimeOnly))
	}
	if len(report.Services) == 0 {
		sanitize.Fprintf(to, "No connection of node %s goes to %s.\n", report.Node, requestedServices(query))
		return nil
	}
	err := flows.Text(to, report, query.Service.Name != "", f.top)
	if err == nil && f.isContinuous {
		sanitize.Fprintf(to, "\n")
	}
	return err
}

// requestedServices returns a description of the query, as part of a sentence.
func requestedServices(query explain.Query) string {
	switch {
	case query.Service.Name != "":
		return "service " + query.Service.String()
	case query.Service.Namespace != "":
		return "a Service in namespace " + query.Service.Namespace
	}
	return "a Service"
}
