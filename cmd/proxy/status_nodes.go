package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status/clusterstatus"
)

// clusterStatusFlags select the nodes of 'status --all-nodes'.
type clusterStatusFlags struct {
	allNodes bool
	context  string
	clusterstatus.Options
}

func (f *clusterStatusFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.allNodes, "all-nodes", f.allNodes,
		"query the proxies of all Nodes that run Linux through the API server, one line each, without comparing their kernels")
	flags.StringVar(&f.context, "context", "", "with --all-nodes: `NAME` of the context in the kubeconfig (default: the current one)")
	flags.StringVar(&f.Namespace, "proxy-namespace", "kube-system", "with --all-nodes: `NAMESPACE` of the proxy's pods")
	flags.StringVar(&f.Selector, "proxy-selector", "app.kubernetes.io/name=vicinity-proxy", "with --all-nodes: `LABELS` of the proxy's pods")
	flags.IntVar(&f.Port, "proxy-healthz-port", 10256, "with --all-nodes: `PORT` at which the proxies serve /livez")
}

// runClusterStatus prints a line for each node.
func runClusterStatus(ctx context.Context, stdout, stderr io.Writer, kubeconfig string, flags *clusterStatusFlags, output string) error {
	clientLog(stderr)
	connectionFlags := kubectlFlags{kubeconfig: kubeconfig, context: flags.context}
	config, err := connectionFlags.connection().Config()
	if err != nil {
		return unreadableError{fmt.Errorf("connect to the API server: %w", err)}
	}
	nodes, err := clusterstatus.CheckNodes(ctx, config, flags.Options)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return errors.New("there is no Node that runs Linux, so there is no proxy to query")
	}
	if output == "text" {
		err = clusterstatus.Text(stdout, nodes)
	} else {
		err = explain.Print(stdout, output, nodes)
	}
	if err != nil {
		return err
	}
	var status error
	for i := range nodes {
		switch {
		case !nodes[i].InSync:
			return cli.ExitError(cli.Failure)
		case nodes[i].InvalidObjects > 0: // only 'status' on the node can tell whether earlier versions are active
			status = cli.ExitError(exitIncomplete)
		}
	}
	return status
}
