package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/folder"
)

// runWhy prints why a node does not use an endpoint, and after which changes it would.
func runWhy(ctx context.Context, stdout, stderr io.Writer, flags *explainFlags, query explain.Query) error {
	objects, err := flags.objects(ctx, stderr)
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
	answers, err := forecast.NewCluster(objects, flags.view()).Reasons(flags.node, query, flags.why, time.Now())
	if err != nil {
		return err
	}
	if flags.output == "text" {
		return forecast.WhyText(stdout, answers)
	}
	return explain.Print(stdout, flags.output, answers)
}

// objects reads everything once, as it is written.
func (f *stateFlags) objects(ctx context.Context, stderr io.Writer) (convert.Objects, error) {
	if f.manifests == "" {
		kube.LogTo(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
		config, err := f.connection().Config()
		if err != nil {
			return convert.Objects{}, fmt.Errorf("connect to the API server: %w", err)
		}
		return cluster.Objects(ctx, config, nil)
	}
	objects, problems, err := folder.Objects(f.manifests, nil)
	if err != nil {
		return convert.Objects{}, fmt.Errorf("load manifests: %w", err)
	}
	for _, problem := range problems {
		fmt.Fprintf(stderr, "warning: %s\n", problem)
	}
	return objects, nil
}
