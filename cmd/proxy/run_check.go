package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/daemon"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
)

// nodeTimeout is how long 'run --check' waits for its Node.
const nodeTimeout = 15 * time.Second

// runCheck prints what would change, without changing anything.
func runCheck(ctx context.Context, stdout, stderr io.Writer, flags *runFlags, output string) error {
	if flags.path == "" {
		return cli.UsageError{Err: errors.New("--check needs --config FILE, kube-proxy's file, to print what would change for it")}
	}
	comparison, err := config.Compare(flags.path)
	if err != nil {
		return err
	}
	report := config.Report{
		File: flags.path, Settings: append([]config.SettingResult{}, comparison.Results...), OnNode: []config.SettingResult{},
		VicinityFields: map[string]string{},
	}
	if !comparison.Starts() {
		flags.path = "" // the node is checked all the same, with the flags and defaults
	}
	if err := flags.read(); err != nil {
		return err
	}
	if err := flags.Validate(); err != nil {
		return cli.UsageError{Err: err}
	}
	report.Node = flags.node
	if flags.file != nil {
		maps.Copy(report.VicinityFields, flags.file.VicinityFields)
	}
	node := daemon.Check(ctx, &flags.settings, flags.ownTables == "auto")
	report.OnNode = append(report.OnNode, node.Results...)
	if comparison.Starts() {
		object, result := flags.localNode(ctx, stderr)
		report.OnNode = append(report.OnNode, result)
		for _, family := range node.Families {
			report.OnNode = append(report.OnNode,
				config.CompareNodePorts(comparison.NodePorts, flags.settings.NodePorts, family, object, node.Addresses))
		}
	}
	report.Evaluate()
	if output == "text" {
		report.Text(stdout)
	} else if err := explain.Print(stdout, output, report); err != nil {
		return err
	}
	if !report.Starts {
		return cli.ExitError(cli.Usage)
	}
	if missing := flags.noServiceMessage(); missing != "" {
		return unreadableError{errors.New(missing)}
	}
	return flags.incompleteError(explain.Query{})
}

// localNode reads the Node, if a source is given. Objects that are ignored in the process cause warnings.
func (f *stateFlags) localNode(ctx context.Context, stderr io.Writer) (*model.Node, config.SettingResult) {
	result := config.SettingResult{Subject: "Node", Value: f.node, Outcome: config.Unknown}
	if err := f.checkOrigin(); err != nil {
		result.Effect, result.Do = "it is not read", "give --kubeconfig FILE, or --manifests PATH"
		return nil, result
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	change, err := f.load(ctx, stderr, apiserver.LocalNode)
	node := change.Nodes[f.node]
	switch {
	case err != nil:
		result.Effect, result.Do = err.Error(), "give --kubeconfig FILE with one that works on this node; the proxy's own must work where it runs"
	case node == nil:
		result.Effect, result.Do = "there is no Node of this name in "+f.origin(), "give --node NAME with this node's name in the cluster"
	default:
		result.Outcome, result.Effect = config.Same, "names "+addresses(node)
	}
	return node, result
}

func addresses(node *model.Node) string {
	var texts []string
	for _, addr := range node.Addresses {
		texts = append(texts, addr.String())
	}
	return cmp.Or(strings.Join(texts, ", "), "no address")
}
