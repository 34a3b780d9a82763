package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

func newStatus() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the cluster runs, and where its files are",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := absolute(dir)
			if err != nil {
				return err
			}
			return status(cmd.Context(), cmd.OutOrStdout(), cluster.Folder(folder))
		},
	}
	addDir(cmd, &dir)
	return cmd
}

func errNoLab(folder cluster.Folder) error {
	return fmt.Errorf("no lab runs in %s: start one with `lab up`, or name its folder with --dir", folder)
}

func status(ctx context.Context, stdout io.Writer, folder cluster.Folder) error {
	keeper, err := keeperOf(folder)
	if err != nil {
		return err
	}
	if keeper == 0 {
		return errNoLab(folder)
	}
	fmt.Fprintf(stdout, "process     %d\nkubeconfig  %s\nlogs        %s\n\n", keeper, folder.Kubeconfig(), folder.Logs())
	return cluster.Report(ctx, stdout, folder)
}
