package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
)

// runWhy prints why a node does not use an endpoint, and which changes would make the node use it.
func runWhy(ctx context.Context, stdout, stderr io.Writer, flags *explainFlags, query explain.Query) error {
	objects, invalid, err := readObjects(ctx, stderr, &flags.manifestsFlag, flags.onceConnection(), flags.topology.namespace)
	if err != nil {
		return err
	}
	if flags.manifests != "" {
		flags.inventory = objects.Inventory()
	}
	if missing := flags.noServiceMessage(); missing != "" {
		return unreadableError{errors.New(missing)}
	}
	flags.warnOfMissingSlices(stderr)
	names := make([]string, 0, len(objects.Nodes))
	for _, node := range objects.Nodes {
		names = append(names, node.Name)
		if node.Name == flags.node {
			warnIfNotLinux(stderr, node.Name, node.Labels)
		}
	}
	if err := flags.checkNode(stderr, names); err != nil {
		return err
	}
	cluster := forecast.NewCluster(objects, flags.view())
	flags.running.warnOfUnreachable(stderr, flags.node)
	cluster = cluster.WithDemotions(flags.running.demotions(flags.node).Demotions)
	explanations, findings, err := cluster.ExplainEndpoint(flags.node, query, flags.why, time.Now())
	printWarnings(stderr, findings)
	flags.invalid = append(invalid, findings...)
	if err != nil {
		return err
	}
	if flags.output == "text" {
		return forecast.WhyText(stdout, explanations)
	}
	return explain.Print(stdout, flags.output, explanations)
}
