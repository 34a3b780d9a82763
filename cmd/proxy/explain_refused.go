package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
)

const (
	refusalsTimeout = 3 * time.Second
	// maxRefusals bounds what is read of an answer, in bytes: some 40,000 Services.
	maxRefusals = 16 << 20
)

// askRefusals asks the proxy that runs on this machine which Services the kernel refuses. There may be none, or
// another program, and then nothing is known: what explain prints is what a proxy would decide.
func askRefusals(ctx context.Context, address string) explain.Refusals {
	var refusals explain.Refusals
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return refusals
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, refusalsTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/refused", nil)
	if err != nil {
		return refusals
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy of the environment's
	answer, err := client.Do(request)
	if err != nil {
		return refusals
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(answer.Body, maxRefusals)).Decode(&refusals) != nil {
		return explain.Refusals{}
	}
	return refusals
}
