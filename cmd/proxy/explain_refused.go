package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

// askRefusals asks the proxy that runs on this machine which Services the kernel refuses. There may be none, or
// another program, and then nothing is known: what explain prints is what a proxy would decide.
func askRefusals(ctx context.Context, address string) explain.Refusals {
	var refusals explain.Refusals
	if page, err := status.Ask(ctx, address, "/refused"); err != nil || json.Unmarshal(page, &refusals) != nil {
		return explain.Refusals{}
	}
	return refusals
}

// askSummary asks the same proxy how it is doing; nil if none answers.
func askSummary(ctx context.Context, address string) *status.Summary {
	var summary status.Summary
	if page, err := status.Ask(ctx, address, "/summary"); err != nil || json.Unmarshal(page, &summary) != nil {
		return nil
	}
	return &summary
}

// tellUnreachable says which nodes do not answer the one of a running proxy. No object says it.
func tellUnreachable(stderr io.Writer, running *status.Summary) {
	if running.Reachability == nil {
		return
	}
	becomes := "its endpoints are the last rank here"
	if !running.Reachability.Avoided {
		becomes = "it is only watched (--unreachable-nodes), and its endpoints are used as those of all nodes"
	}
	for _, node := range running.Reachability.Unreachable {
		printable.Fprintf(stderr, "proxy: node %s does not answer %s since %s: %s\n",
			node.Node, running.Node, node.Since.UTC().Format(time.RFC3339), becomes)
	}
}
