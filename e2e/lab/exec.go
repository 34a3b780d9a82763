package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

func newExec() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "exec NODE PROGRAM [ARGUMENT...]",
		Short: "Run a program of this machine in the network of a node",
		Long: `Run a program of this machine in the network of a node: to see its rules, its links, its packets.

Nodes have no such programs of their own.`,
		Example: `  lab exec node-1 nft list table ip vicinity
  lab exec node-1 ip -6 route
  lab exec --dir bin/e2e node-2 tcpdump -ni any port 53`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := absolute(dir)
			if err != nil {
				return err
			}
			pid, err := firstProcess(cluster.Folder(folder), args[0])
			if err != nil {
				return err
			}
			program := exec.CommandContext(cmd.Context(), args[1], args[2:]...)
			program.Stdin, program.Stdout, program.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return runIn(filepath.Join("/proc", pid, "ns/net"), program)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after the node are the program's
	addDir(cmd, &dir)
	return cmd
}

// firstProcess returns the process id of a node's first process.
func firstProcess(folder cluster.Folder, node string) (pid string, err error) {
	keeper, err := keeperOf(folder)
	if err != nil {
		return "", err
	}
	if keeper == 0 {
		return "", errNoLab(folder)
	}
	text, err := os.ReadFile(folder.PID(filepath.Base(node)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("node %q is not running: `lab status` lists the nodes, `lab start` starts one that was stopped", node)
	}
	if err != nil {
		return "", fmt.Errorf("find node %s: %w", node, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// runIn runs a program in a network namespace. The error contains its exit status.
func runIn(namespace string, program *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		handle, err := os.Open(namespace)
		if err != nil {
			result <- fmt.Errorf("open the node's network namespace: %w", err)
			return
		}
		defer handle.Close()
		if err := unix.Setns(int(handle.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter the node's network: %w", err)
			return
		}
		result <- program.Run()
	}()
	return <-result
}
