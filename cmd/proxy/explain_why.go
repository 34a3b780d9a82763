package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/forecast"
)

// runWhy prints why a node does not use an endpoint, and after which changes it would.
func runWhy(ctx context.Context, stdout, stderr io.Writer, flags *explainFlags, query explain.Query) error {
	objects, unread, err := readObjects(ctx, stderr, flags.manifests, flags.onceConnection(), nil)
	if err != nil {
		return err
	}
	known := false
	for _, node := range objects.Nodes {
		known = known || node.Name == flags.node
	}
	if !known {
		return fmt.Errorf("there is no Node %q in %s; --node chooses another one", flags.node, flags.origin())
	}
	answers, refused, err := forecast.NewCluster(objects, flags.view()).Reasons(flags.node, query, flags.why, time.Now())
	warnOf(stderr, refused)
	flags.refused = append(unread, refused...)
	if err != nil {
		return err
	}
	if flags.output == "text" {
		return forecast.WhyText(stdout, answers)
	}
	return explain.Print(stdout, flags.output, answers)
}
