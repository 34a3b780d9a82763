// Command lab runs a real Kubernetes cluster on this machine, in namespaces of its own, with Vicinity as its service
// proxy.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const (
	exitOK          = 0
	exitFailure     = 1
	exitInterrupted = 130 // 128 + SIGINT, as shells report it
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "lab: interrupted; nothing is left running")
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "lab: %v\n", err)
	return exitFailure
}

const rootHelp = `A real Kubernetes cluster on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and
nodes with kubelet, containerd and runc, each in namespaces of its own.

Nothing needs to be installed: no docker, no systemd, no registry. All programs are built from Go modules, once, and
kept in your cache folder. The first build takes about 8 minutes on two cores; afterwards the lab is up in half a minute.

It never touches the machine's own network, mounts, cgroups or kernel settings. Its only trace outside is one
socket on 127.0.0.1, which forwards to the API server.`

const rootExample = `  lab up                                  three nodes in three zones, with Vicinity and its webhook
  lab up --nodes 6 --install none         six nodes without a service proxy
  lab up --kube-proxy --install manifests/beside-kube-proxy
  lab up --install dist/install.yaml --install-webhook dist/install-webhook.yaml \
    --images dist/vicinity-proxy-v0.1.0-image-amd64.tar,dist/vicinity-webhook-v0.1.0-image-amd64.tar
  export KUBECONFIG=$PWD/bin/cluster/kubeconfig
  lab status
  lab exec node-1 nft list ruleset
  lab stop node-2; lab start node-2       power a node off, and start it again as a new machine
  lab down`

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:               "lab",
		Short:             "Run a real Kubernetes cluster on this machine",
		Long:              rootHelp,
		Example:           rootExample,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newUp(), newDown(), newStatus(), newExec(), newStop(), newStart(), newBuild(), newKeeper())
	return root
}

// addDir adds the flag for the lab's folder.
func addDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "bin/cluster", "the `FOLDER` of the lab; several labs may run in several folders")
}
