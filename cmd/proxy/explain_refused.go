package main

import (
	"context"
	"encoding/json"

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
