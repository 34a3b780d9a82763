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
		Short: "Power nodes off abruptly",
		Long: `Power nodes off abruptly: no peer is notified, and their disks are removed.

Their Nodes and pods stay in the API server until it notices, or until you delete them.`,
		Example: `  lab stop node-2 node-5
  kubectl delete node node-2 node-5    # as a cloud provider does with terminated machines`,
	}, func(folder cluster.Folder, node string) error {
		if err := os.WriteFile(folder.Off(node), nil, 0o644); err != nil {
			return fmt.Errorf("request stop of %s: %w", node, err)
		}
		return nil
	}, func(running bool) bool { return !running })
}

func newStart() *cobra.Command {
	return newPower(&cobra.Command{
		Use:   "start NODE...",
		Short: "Start stopped nodes again, as new machines",
		Long: `Start stopped nodes again, as new machines with the old names and addresses: without pods, with the initial images, and,
if their Nodes were deleted, without labels that users added. The command returns when they are ready.`,
		Example: `  lab start node-2 node-5`,
	}, func(folder cluster.Folder, node string) error {
		if err := os.Remove(folder.Off(node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("request start of %s: %w", node, err)
		}
		return nil
	}, func(running bool) bool { return running })
}

// newPower completes a command that requests something for each node and waits until it is done.
func newPower(cmd *cobra.Command, request func(cluster.Folder, string) error, done func(running bool) bool) *cobra.Command {
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
			if err := request(folder, node); err != nil {
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
		return fmt.Errorf("unknown node %q: `lab status` lists all nodes", node)
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
				return fmt.Errorf("wait for %s: %w; see %s", node, ctx.Err(), filepath.Join(folder.Logs(), "keeper.log"))
			case <-time.After(pollInterval):
			}
		}
	}
	return nil
}
