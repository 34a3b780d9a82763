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
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

func newRender() *cobra.Command {
	var flags tableFlags
	command := &cobra.Command{
		Use:   "render [flags]",
		Short: "Print the complete ruleset of a node as text that 'nft -f' loads",
		Long: `Print the tables that 'proxy run' with the same flags would put into the kernel of a node, as 'nft list ruleset' shows
them. Neither root nor a kernel with nftables is needed.

Interfaces are not read. The node is assumed to have the addresses that its Node object lists, and no others; 'run' uses
those of its interfaces. If --nodeport-addresses selects some of them, node ports are shown on these.

Ignored parts of the manifests are reported on standard error; standard output has only the ruleset.

Exit status: 1 if there is no ruleset, 2 if the command line is wrong, or if an object is invalid or could not be read, so
that the ruleset lacks it.`,
		Example: `  proxy render --manifests state --node node-a1

  # what a change to the manifests changes in the kernel
  diff <(proxy render --manifests before --node node-a1) <(proxy render --manifests after --node node-a1)

  # let nft check it, in a new network namespace
  proxy render --manifests state --node node-a1 | sudo unshare --net nft -c -f -`,
		Args:                  cli.MaxArgs(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			flags.stdin = command.InOrStdin()
			if err := flags.read(); err != nil {
				return err
			}
			if err := flags.Validate(); err != nil {
				return cli.UsageError{Err: err}
			}
			err := exitUnreadable(command, runRender(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), &flags))
			if err == nil {
				err = flags.incompleteError(explain.Query{})
			}
			return err
		},
	}
	flags.register(command.Flags())
	return command
}

// runRender prints the tables that 'run' would create.
func runRender(ctx context.Context, stdout, stderr io.Writer, flags *tableFlags) error {
	change, err := flags.load(ctx, stderr, apiserver.LocalNode)
	if err != nil {
		return err
	}
	if err := flags.checkNode(stderr, flags.nodeNames(change.Nodes)); err != nil {
		return err
	}
	tables := flags.settings.Tables(model.Families)
	node := change.Nodes[flags.node]
	if node != nil {
		warnIfNotLinux(stderr, node.Name, node.Labels)
		change.LocalAddrs = node.Addresses
	}
	for _, sentence := range config.RenderWarnings(tables, node, change.Services) {
		sanitize.Fprintf(stderr, "warning: %s\n", sentence)
	}
	desired, err := drift.Desired(ctx, flags.node, tables, dns.Zone{}, change, nil)
	if err != nil {
		return err
	}
	if err := desired.Tables.Print(stdout); err != nil {
		return fmt.Errorf("write the ruleset: %w", err)
	}
	if missing := flags.noServiceMessage(); missing != "" {
		return unreadableError{errors.New(missing)}
	}
	return nil
}
