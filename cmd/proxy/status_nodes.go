package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status/rollcall"
)

// rollcallFlags say whom 'status --all-nodes' asks.
type rollcallFlags struct {
	allNodes bool
	context  string
	rollcall.Options
}

func (f *rollcallFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.allNodes, "all-nodes", f.allNodes,
		"ask the proxies of all Nodes through the API server, a line each, without comparing their kernels")
	flags.StringVar(&f.context, "context", "", "with --all-nodes: `NAME` of the context in the kubeconfig (default: the current one)")
	flags.StringVar(&f.Namespace, "proxy-namespace", "kube-system", "with --all-nodes: `NAMESPACE` of the proxy's pods")
	flags.StringVar(&f.Selector, "proxy-selector", "app.kubernetes.io/name=vicinity-proxy", "with --all-nodes: `LABELS` of the proxy's pods")
	flags.IntVar(&f.Port, "proxy-healthz-port", 10256, "with --all-nodes: `PORT` at which the proxies serve /livez")
}

// runRollcall prints a line for each node.
func runRollcall(ctx context.Context, stdout, stderr io.Writer, kubeconfig string, flags *rollcallFlags, output string) error {
	clientLog(stderr)
	from := kubectlFlags{kubeconfig: kubeconfig, context: flags.context}
	config, err := from.connection().Config()
	if err != nil {
		return unreadableError{fmt.Errorf("connect to the API server: %w", err)}
	}
	nodes, err := rollcall.Call(ctx, config, flags.Options)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return errors.New("there is no Node, so that no proxy could be asked")
	}
	if output == "text" {
		err = printNodes(stdout, nodes)
	} else {
		err = explain.Print(stdout, output, nodes)
	}
	if err != nil {
		return err
	}
	var status error
	for i := range nodes {
		switch {
		case !nodes[i].Agrees:
			return cli.Exit(cli.Failure)
		case nodes[i].RefusedObjects > 0: // whether something of them is in force is told on the node alone
			status = cli.Exit(exitUnread)
		}
	}
	return status
}

func printNodes(stdout io.Writer, nodes []rollcall.Node) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	printable.Fprintf(table, "NODE\tAGREES\tLAST SYNC\tREFUSED OBJECTS\tAPI SERVER\tPROBLEM\n")
	agree, refuse := 0, 0
	for i := range nodes {
		node := &nodes[i]
		agrees, synced, heard := "no", "-", "heard"
		if node.Agrees {
			agrees = "yes"
			agree++
		}
		if node.RefusedObjects > 0 {
			refuse++
		}
		if !node.Synced.IsZero() {
			synced = fmt.Sprintf("%s ago", time.Since(node.Synced).Round(time.Second))
		}
		if len(node.Interruptions) > 0 {
			var resources []string
			for _, one := range node.Interruptions {
				resources = append(resources, one.Resource)
			}
			heard = "not about " + strings.Join(resources, ", ")
		}
		if node.Pod == "" {
			heard = "-"
		}
		printable.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", node.Node, agrees, synced, node.RefusedObjects, heard, cmp.Or(node.Problem, "-"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	summary := fmt.Sprintf("%d of %d nodes agree.", agree, len(nodes))
	if refuse > 0 {
		summary += " Refused objects keep their last good versions, if there were any; 'proxy status' on a node names them."
	}
	if _, err := printable.Fprintf(stdout, "\n%s\n", summary); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
