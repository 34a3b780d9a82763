package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/audit"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

// newStatus returns the command. With everywhere it asks all nodes.
func newStatus(everywhere bool) *cobra.Command {
	var output string
	nodes := rollcallFlags{allNodes: everywhere}
	command := &cobra.Command{
		Use:   "status [flags]",
		Short: "Print whether the kernel of this node holds what it should, and how the proxy is doing",
		Long: `Ask the proxy that runs on this node, at --metrics-bind-address: since when the kernel agrees with the cluster, what changed
last and how long it took, what waits, is refused or contested, and whether the API server can be reached.

Then compare what the kernel holds with what it should hold, element by element, chain by chain and rule by rule. Both are
read again: the Services from where the proxy reads them, with the flags that it reports, and the kernel over another
connection. The proxy's own record of the kernel is not used. Which slot of a port an endpoint has depends on history and
means nothing; only the number of its slots is compared. A difference counts if it is seen twice, a second apart, so
that changes on their way do not count.

All flags of 'proxy run' may be given; they override what the proxy reports, and are needed if no proxy answers.

With --all-nodes the proxies of all Nodes are asked instead, through the API server, and their kernels are not compared:
that needs to list Nodes, and in the proxy's namespace to list pods and to get pods/proxy.

Rules of another service proxy that may answer first do not agree either, unless --service-proxy-name is set.

For an object that is refused, the kernel should hold its last good version. Only the proxy can have seen that one, so it
is asked for it. Refused objects are listed.

Exit status: 0 if everything agrees, 1 if not, and 2 if all agrees but a refused object has no good version in force, or there
is no Service at all; with --all-nodes 2 if all agree but one left objects out. Root (CAP_NET_ADMIN) is needed, except
for --all-nodes.`,
		Example: `  # on a node
  sudo proxy status

  # in the pod of a node
  kubectl -n kube-system exec vicinity-proxy-x7k2p -- proxy status

  # a line for each node
  proxy status --all-nodes

  # where the kernel differs, for scripts
  proxy status -o json | jq -r '.kernel.differences[] | [.table, .in, .what, .kind] | @tsv'`,
		Args:                  cli.AtMost(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := cli.OneOf("output", output, "text", "json", "yaml"); err != nil {
				return cli.UsageError{Err: err}
			}
			given := givenOfRun(command.Flags())
			if nodes.allNodes {
				return toldUnreadable(command,
					runRollcall(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), given["kubeconfig"], &nodes, output))
			}
			return runStatus(command.Context(), command.InOrStdin(), command.OutOrStdout(), given, output)
		},
	}
	registerOfRun(command.Flags())
	nodes.register(command.Flags())
	command.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text, json or yaml")
	cli.Complete(command, "output", "text", "json", "yaml")
	return command
}

// givenOfRun returns the flags of 'proxy run' that were given.
func givenOfRun(flags *pflag.FlagSet) map[string]string {
	given, ofRun := map[string]string{}, pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(ofRun)
	flags.Visit(func(flag *pflag.Flag) {
		if ofRun.Lookup(flag.Name) != nil {
			given[flag.Name] = valueOf(flag)
		}
	})
	return given
}

// valueOf is a flag's value as it is written on a command line.
func valueOf(flag *pflag.Flag) string {
	if list, isList := flag.Value.(pflag.SliceValue); isList {
		return strings.Join(list.GetSlice(), ",")
	}
	return flag.Value.String()
}

func runStatus(ctx context.Context, stdin io.Reader, stdout io.Writer, given map[string]string, output string) error {
	flags, summary, err := likeRunning(ctx, stdin, given)
	if err != nil {
		return err
	}
	address := flags.settings.MetricsBindAddress
	node := audit.Node{Proxy: summary}
	if node.Kernel, err = audit.Run(ctx, flags.audit(summary)); err != nil {
		return err
	}
	node.Refused = audit.Refusals(flags.refused, flags.lastGood)
	node.Lacks = flags.lacks(&node.Kernel)
	isInForce := node.Judge()
	if output == "text" {
		err = audit.Text(stdout, &node, address)
	} else {
		err = explain.Print(stdout, output, node)
	}
	switch {
	case err != nil:
	case !node.Agrees:
		err = cli.Exit(cli.Failure)
	case !isInForce || node.Lacks != "":
		err = cli.Exit(exitUnread)
	}
	return err
}

// likeRunning returns the flags that the proxy of this node reports, overridden by the given ones, and what it says
// about its work; nil if no proxy answers.
func likeRunning(ctx context.Context, stdin io.Reader, given map[string]string) (*runFlags, *status.Summary, error) {
	flags, err := parsedRun(given)
	if err != nil {
		return nil, nil, cli.UsageError{Err: err}
	}
	address := flags.settings.MetricsBindAddress
	said := map[string]string{}
	proxy, _ := status.Read[status.Summary](ctx, address, "/summary") // without one, the flags must be given
	if proxy != nil {
		if err := askFlags(ctx, address, given, said); err != nil {
			return nil, nil, fmt.Errorf("ask the proxy at %s for its flags: %w", address, err)
		}
	}
	maps.Copy(said, given)
	if flags, err = parsedRun(said); err != nil {
		return nil, nil, err
	}
	flags.stdin = stdin
	if err := flags.Validate(); err != nil {
		if proxy == nil {
			return nil, nil, fmt.Errorf("no proxy answers at %s, and without it the flags of 'proxy run' must be given: %w", address, err)
		}
		return nil, nil, err
	}
	return flags, proxy, nil
}

// audit returns what the kernel is compared with. For refused objects that is what a running proxy has in force, if one
// answers.
func (f *runFlags) audit(proxy *status.Summary) audit.Question {
	f.withHeadless = f.dns.address.IsValid() // as the daemon
	return audit.Question{
		Node: f.node, Config: f.settings.Tables(model.Families), Zone: f.dns.zone, BesideOthers: f.serviceProxyName != "",
		Load: func(ctx context.Context) (_ model.Change, err error) {
			if proxy != nil {
				if f.lastGood, err = askLastGood(ctx, f.settings.MetricsBindAddress); err != nil {
					return model.Change{}, err
				}
			}
			change, err := f.load(ctx, io.Discard, cluster.OwnNode)
			return change.Then(proxy.Avoids()), err
		},
	}
}

// lacks says why nothing, or not everything, was compared although nothing is refused; empty if everything was.
func (f *runFlags) lacks(compared *audit.Kernel) string {
	switch {
	case f.lacksSlices:
		sentence, _ := f.held.LackOfSlices(f.origin())
		return sentence
	case compared.Services+compared.DNSServices == 0:
		return f.noService()
	}
	return ""
}

// parsedRun returns the flags of 'proxy run' with some values, and the configuration read.
func parsedRun(values map[string]string) (*runFlags, error) {
	set, flags := pflag.NewFlagSet("run", pflag.ContinueOnError), &runFlags{}
	flags.register(set)
	for name, value := range values {
		if err := set.Set(name, value); err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
	}
	if err := flags.read(); err != nil {
		return nil, err
	}
	return flags, flags.resolve()
}

// askFlags adds the flags that the proxy runs with. If it does not serve them, the given ones must suffice.
func askFlags(ctx context.Context, address string, given, said map[string]string) error {
	page, err := status.Ask(ctx, address, "/flagz")
	switch {
	case err == nil:
		defaults := pflag.NewFlagSet("run", pflag.ContinueOnError)
		new(runFlags).register(defaults)
		status.ReadFlags(page, defaults, said)
		return nil
	case !errors.Is(err, status.ErrNoPage):
		return err
	}
	for name := range given {
		if name != "metrics-bind-address" {
			return nil
		}
	}
	return fmt.Errorf("%w, so the flags of 'proxy run' must be given (its feature gate ComponentFlagz is off)", err)
}

// askLastGood asks the proxy which objects it refuses, and which earlier versions of them are in force. A proxy of a
// version without that page, or another program, says nothing.
func askLastGood(ctx context.Context, address string) ([]convert.Refusal, error) {
	refusals, err := status.Read[[]convert.Refusal](ctx, address, "/lastgood")
	switch {
	case errors.Is(err, status.ErrNoPage):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask the proxy at %s what is in force of refused objects: %w", address, err)
	}
	return *refusals, nil
}
