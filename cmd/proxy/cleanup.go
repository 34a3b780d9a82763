package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

func newCleanup() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove Vicinity's tables from the kernel, and nothing else",
		Long: `Remove the tables 'ip vicinity' and 'ip6 vicinity' from the current network namespace, and the counters in
'vicinity-demand'. Everything else in nftables is kept. It is not a failure if there is nothing to remove.

Stop 'proxy run' first: it would recreate the tables, and while it owns them the kernel does not let others remove them.
Established connections keep their endpoints until they end.`,
		Example: `  sudo proxy cleanup

  # in the network namespace of a container
  sudo nsenter --net=/proc/4711/ns/net proxy cleanup`,
		Args:                  cli.MaxArgs(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			return runCleanup(command.Context(), command.OutOrStdout())
		},
	}
}

func runCleanup(ctx context.Context, stdout io.Writer) error {
	removed, err := nft.Cleanup(ctx)
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	for _, family := range removed {
		sanitize.Fprintf(stdout, "removed the %s table %q\n", family, ruleset.TableName)
	}
	if len(removed) == 0 {
		sanitize.Fprintf(stdout, "nothing to remove\n")
	}
	return nil
}
