package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
)

// Each proxy runs in its node's network, so that all of them can use the same addresses.
const (
	healthAddress  = "127.0.0.1:10256"
	metricsAddress = "127.0.0.1:10249"
)

const (
	startTimeout = time.Minute
	// pageTimeout bounds the time of a page if other programs use the CPUs.
	pageTimeout = 10 * time.Second
	stopTimeout = 2 * time.Second
	logLines    = 8 // printed of each proxy after a failure
)

// proxy is a running `proxy run`.
type proxy struct {
	node    *fabric.Node
	process *fabric.Process
	log     string
}

func startProxy(program, manifests, logs string, node *fabric.Node) (*proxy, error) {
	log, err := os.Create(filepath.Join(logs, node.Name+".log"))
	if err != nil {
		return nil, fmt.Errorf("create the log of the proxy on %s: %w", node.Name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(program, "run", "--manifests", manifests, "--node", node.Name,
		"--cluster-cidr", fabric.PodsIPv4.String()+","+fabric.PodsIPv6.String(),
		"--unreachable-node-mode", "enforce", "--traffic-accounting", "totals",
		"--metrics-bind-address", metricsAddress)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := node.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &proxy{node: node, process: process, log: log.Name()}, nil
}

// waitReady polls /readyz until it succeeds: from then on the rules are in the kernel.
func (p *proxy) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // the error of the timeout itself has no cause
		}
		select {
		case <-p.process.Done():
			return fmt.Errorf("the proxy on %s exited (%s); its last output:\n%s", p.node.Name, p.process.State(), p.lastOutput())
		case <-ctx.Done():
			return fmt.Errorf("the proxy on %s is not ready after %s: %w; its last output:\n%s",
				p.node.Name, startTimeout, last, p.lastOutput())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *proxy) ready(ctx context.Context) error {
	_, err := p.page(ctx, healthAddress, "/readyz")
	return err
}

// page gets one of the proxy's pages.
func (p *proxy) page(ctx context.Context, address, path string) ([]byte, error) {
	dial := func(_ context.Context, network, addr string) (net.Conn, error) {
		return p.node.Dial(network, addr, pageTimeout)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: pageTimeout}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("get a page of the proxy on %s: %w", p.node.Name, err) // the error contains the address
	}
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", response.Status)
	}
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("get from the proxy on %s the page %s: %w", p.node.Name, path, err)
	}
	return text, nil
}

// reachability returns the proxy's view of the other nodes.
func (p *proxy) reachability(ctx context.Context) (*status.Reachability, error) {
	text, err := p.page(ctx, metricsAddress, "/summary")
	if err != nil {
		return nil, err
	}
	var summary status.Summary
	if err := json.Unmarshal(text, &summary); err != nil {
		return nil, fmt.Errorf("read the page /summary of the proxy on %s: %w", p.node.Name, err)
	}
	if summary.Reachability == nil {
		return nil, fmt.Errorf("the page /summary of the proxy on %s has no reachability of other nodes", p.node.Name)
	}
	return summary.Reachability, nil
}

func (p *proxy) stop() {
	_ = p.process.Stop(stopTimeout) // the result does not matter
}

// lastOutput returns the end of the proxy's log.
func (p *proxy) lastOutput() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-logLines):]
	return "    " + strings.Join(lines, "\n    ")
}
