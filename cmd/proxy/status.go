package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/drift"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// newStatus returns the command. allNodes is the default of --all-nodes.
func newStatus(allNodes bool) *cobra.Command {
	var flags runFlags
	var output string
	nodeFlags := clusterStatusFlags{allNodes: allNodes}
	command := &cobra.Command{
		Use:   "status [flags]",
		Short: "Print whether the kernel of this node is in sync, and the state of the proxy",
		Long: `Query the proxy that runs on this node, at --metrics-bind-address: since when the kernel is in sync with the cluster, what
changed last and how long it took, what is pending, rejected or in conflict, and whether the API server can be reached.

Then compare the actual state of the kernel with the desired state, element by element, chain by chain and rule by rule. Both
are read independently: the Services from the proxy's source, with the settings that it reports, and the kernel over another
connection. The proxy's own record of the kernel is not used. Which slot of a port an endpoint has depends on history and
does not matter; only the number of its slots is compared. A difference counts if it is found twice, a second apart, so
that changes in progress do not count.

All flags of 'proxy run' may be given; they override what the proxy reports, and are needed if no proxy responds. Outside of
the proxy's pod, give a --kubeconfig of your own.

With --all-nodes it queries the proxies of all Nodes instead, through the API server, and does not compare their kernels:
this needs permission to list Nodes, and in the proxy's namespace to list pods and to get pods/proxy.

Rules of another service proxy that may match first count as a difference, too, unless --service-proxy-name is set.

For an invalid object, the kernel should have its last known good version, which only the proxy knows. Invalid objects
are listed.

Exit status: 0 if everything is in sync, 1 if not, and 2 if all is in sync but an invalid object has no known good version,
or there is no Service at all; with --all-nodes 2 if all are in sync but one ignores invalid objects. Root (CAP_NET_ADMIN) is
needed, except for --all-nodes.`,
		Example: `  # on a node, which does not have the kubeconfig of the proxy's pod
  sudo proxy status --kubeconfig admin.conf

  # in the pod of a node
  kubectl -n kube-system exec vicinity-proxy-x7k2p -- /proxy status

  # a line for each node
  proxy status --all-nodes

  # where the kernel differs, for scripts
  proxy status -o json | jq -r '.kernel.differences[] | [.table, .in, .what, .kind] | @tsv'`,
		Args:                  cli.MaxArgs(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := cli.Choice("output", output, "text", "json", "yaml"); err != nil {
				return cli.UsageError{Err: err}
			}
			if nodeFlags.allNodes {
				kubeconfig, _ := flags.givenText("clientConnection.kubeconfig")
				return exitUnreadable(command,
					runClusterStatus(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), kubeconfig, &nodeFlags, output))
			}
			flags.stdin = command.InOrStdin()
			return exitUnreadable(command, runStatus(command.Context(), command.OutOrStdout(), &flags, output))
		},
	}
	flags.registerLikeRun(command.Flags())
	nodeFlags.register(command.Flags())
	command.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text, json or yaml")
	cli.Complete(command, "output", "text", "json", "yaml")
	return command
}

func runStatus(ctx context.Context, stdout io.Writer, flags *runFlags, output string) error {
	if err := flags.readLikeRun(ctx); err != nil {
		return err
	}
	kernel, err := drift.Run(ctx, flags.driftOptions())
	if err != nil {
		return err
	}
	node := drift.Node{Proxy: flags.running.summary, Kernel: kernel}
	node.Invalid = drift.InvalidObjects(flags.invalid, flags.lastKnownGood)
	node.Missing = flags.incompleteMessage(&node.Kernel)
	hasLastKnownGood := node.Compare()
	if output == "text" {
		err = drift.Text(stdout, &node, flags.running.address)
	} else {
		err = explain.Print(stdout, output, node)
	}
	switch {
	case err != nil:
	case !node.InSync:
		err = cli.ExitError(cli.Failure)
	case !hasLastKnownGood || node.Missing != "":
		err = cli.ExitError(exitIncomplete)
	}
	return err
}

// driftOptions returns the options of the comparison with the kernel. For invalid objects, the desired state has the
// versions that are active in the running proxy, if there is one.
func (f *runFlags) driftOptions() drift.Options {
	f.withHeadless = f.dns.address.IsValid() // as in the daemon
	return drift.Options{
		Node: f.node, Config: f.settings.Tables(model.Families), Zone: f.dns.zone, IgnoreOtherProxies: f.serviceProxyName != "",
		Load: func(ctx context.Context) (_ model.Change, err error) {
			if f.running.summary != nil {
				if f.lastKnownGood, err = fetchLastKnownGood(ctx, f.running.address); err != nil {
					return model.Change{}, err
				}
			}
			change, err := f.load(ctx, io.Discard, apiserver.LocalNode)
			return change.Merge(f.running.demotions(f.node)), err
		},
	}
}

// incompleteMessage returns why nothing, or not everything, was compared although no object is invalid; empty if
// everything was.
func (f *runFlags) incompleteMessage(kernel *drift.Kernel) string {
	switch {
	case f.lacksSlices:
		sentence, _ := f.inventory.MissingSlices(f.origin())
		return sentence
	case kernel.Services+kernel.DNSServices == 0:
		return f.noServiceMessage()
	}
	return ""
}

// fetchLastKnownGood returns the proxy's invalid objects with their last valid versions, which are still active. It
// returns nothing for a proxy without that page, or another program.
func fetchLastKnownGood(ctx context.Context, address string) ([]convert.Rejection, error) {
	rejections, err := status.Fetch[[]convert.Rejection](ctx, address, "/findings?last-known-good")
	switch {
	case errors.Is(err, status.ErrNoPage):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get the active versions of invalid objects from the proxy at %s: %w", address, err)
	}
	return *rejections, nil
}
