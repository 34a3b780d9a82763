package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cgroup"
	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

func newDown() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything it created",
		Long:  `Stop the cluster and remove everything it created, including logs. It may be called at any time and any number of times.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := absolute(dir)
			if err != nil {
				return err
			}
			return down(cluster.Folder(folder))
		},
	}
	addDir(cmd, &dir)
	return cmd
}

const (
	// downTimeout is the time that a keeper has to shut down in order.
	downTimeout  = 15 * time.Second
	pollInterval = 20 * time.Millisecond
)

func down(folder cluster.Folder) error {
	if err := endKeeper(folder, unix.SIGTERM, unix.SIGKILL); err != nil {
		return err
	}
	if err := cleanUp(folder); err != nil {
		return err
	}
	if err := os.RemoveAll(lockFile(folder)); err != nil {
		return fmt.Errorf("remove the lab's leftovers: %w", err)
	}
	err := os.Remove(string(folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) { // the folder may predate the lab
		return fmt.Errorf("remove the lab's folder: %w", err)
	}
	return nil
}

// endKeeper sends signals to the lab's keeper, one after the other, until it has exited. All processes that it started
// end with it.
func endKeeper(folder cluster.Folder, signals ...unix.Signal) error {
	for _, signal := range signals {
		keeper, err := keeperOf(folder)
		if err != nil || keeper == 0 {
			return err
		}
		if err := unix.Kill(keeper, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end the lab's process %d: %w", keeper, err)
		}
		for deadline := time.Now().Add(downTimeout); time.Now().Before(deadline); time.Sleep(pollInterval) {
			if keeper, err = keeperOf(folder); err != nil || keeper == 0 {
				return err
			}
		}
	}
	return fmt.Errorf("the lab in %s did not exit", folder)
}

// cleanUp removes a lab's files from the machine, except for those in keep. The lab's mounts, networks and processes
// exited with its keeper.
func cleanUp(folder cluster.Folder, keep ...string) error {
	groups, err := os.ReadFile(folder.Groups())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the lab's cgroups: %w", err)
	}
	if err := cgroup.Remove(strings.Fields(string(groups)), downTimeout); err != nil {
		return err
	}
	for _, path := range folder.Contents() {
		if slices.Contains(keep, path) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove the lab's leftovers: %w", err)
		}
	}
	return nil
}
