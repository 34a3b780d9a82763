package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

func newStop() *cobra.Command {
	return newPower(&cobra.Command{
		Use:   "stop NODE...",
		Short: "Take nodes away, as a loss of power does",
		Long: `Take nodes away, as a loss of power does: no peer notices their end, and nothing is left of them.

Their Nodes and pods stay in the API server until it notices, or until you delete them.`,
		Example: `  lab stop node-2 node-5
  kubectl delete node node-2 node-5    # as a cloud does with machines that are gone`,
	}, func(folder cluster.Folder, node string) error {
		if err := os.WriteFile(folder.Off(node), nil, 0o644); err != nil {
			return fmt.Errorf("asking the lab to stop %s: %w", node, err)
		}
		return nil
	}, func(running bool) bool { return !running })
}

func newStart() *cobra.Command {
	return newPower(&cobra.Command{
		Use:   "start NODE...",
		Short: "Bring nodes back that were stopped, as new machines",
		Long: `Bring nodes back that were stopped, as new machines with the old names and addresses: without their pods, images as at
the beginning, and, if their Nodes were deleted, without labels that somebody gave them. The command ends when they are
ready.`,
		Example: `  lab start node-2 node-5`,
	}, func(folder cluster.Folder, node string) error {
		if err := os.Remove(folder.Off(node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("asking the lab to start %s: %w", node, err)
		}
		return nil
	}, func(running bool) bool { return running })
}

// newPower completes a command that requests something for each node and waits until it is done.
func newPower(cmd *cobra.Command, ask func(cluster.Folder, string) error, done func(running bool) bool) *cobra.Command {
	var dir string
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, nodes []string) error {
		path, err := absolute(dir)
		if err != nil {
			return err
		}
		folder := cluster.Folder(path)
		keeper, err := keeperOf(folder)
		if err != nil {
			return err
		}
		if keeper == 0 {
			return errNoLab(folder)
		}
		for _, node := range nodes {
			if err := checkNode(folder, node); err != nil {
				return err
			}
		}
		for _, node := range nodes {
			if err := ask(folder, node); err != nil {
				return err
			}
		}
		return waitForPower(cmd.Context(), folder, nodes, done)
	}
	addDir(cmd, &dir)
	return cmd
}

// checkNode returns an error for a node that is not in the lab. Each node has a folder of logs.
func checkNode(folder cluster.Folder, node string) error {
	if _, err := os.Stat(filepath.Join(folder.Logs(), filepath.Base(node))); err != nil || node != filepath.Base(node) {
		return fmt.Errorf("there is no node %q: `lab status` lists them", node)
	}
	return nil
}

// powerTimeout is longer than the keeper's own timeout for a node.
const powerTimeout = 4 * time.Minute

func waitForPower(ctx context.Context, folder cluster.Folder, nodes []string, done func(running bool) bool) error {
	ctx, cancel := context.WithTimeout(ctx, powerTimeout)
	defer cancel()
	for _, node := range nodes {
		for {
			_, err := os.Stat(folder.PID(node))
			if done(err == nil) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s: %w; %s says why", node, ctx.Err(), filepath.Join(folder.Logs(), "keeper.log"))
			case <-time.After(pollInterval):
			}
		}
	}
	return nil
}
