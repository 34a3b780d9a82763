package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

const (
	// readyTimeout is for a machine that is busy with other tests, where 90 s were too few; alone, the API server takes a
	// few seconds.
	readyTimeout = 5 * time.Minute
	// stopTimeout is what an API server gets to end its watches.
	stopTimeout  = 10 * time.Second
	pollInterval = 50 * time.Millisecond
)

var errRuns = errors.New("the API server runs already")

// StartAPIServer starts the API server after StopAPIServer or KillAPIServer, at the same address and with the same
// data, and returns when it is ready. Flags are appended to those it always has, for this run only.
func (c *ControlPlane) StartAPIServer(ctx context.Context, flags ...string) error {
	if c.apiServer != nil {
		return errRuns
	}
	program := c.config.Programs.Path(binaries.Kubernetes, apiServer)
	server, err := c.launch(apiServer, program, append(c.apiServerFlags(), flags...))
	if err != nil {
		return err
	}
	c.apiServer = server
	return c.waitReady(ctx)
}

// StopAPIServer asks the API server to end, as an upgrade would, and waits until it has. Everything else goes on.
func (c *ControlPlane) StopAPIServer() error {
	if c.apiServer == nil {
		return nil
	}
	err := c.apiServer.Stop(stopTimeout)
	c.apiServer = nil
	return err
}

// KillAPIServer ends the API server at once. Everything else goes on.
func (c *ControlPlane) KillAPIServer() {
	if c.apiServer != nil {
		kill(c.apiServer)
	}
	c.apiServer = nil
}

// kill ends a process. What we started ourselves we may kill, so there is no error to act on.
func kill(p *process.Process) { _ = p.Kill() }

// waitReady asks /readyz until it says yes.
func (c *ControlPlane) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var last error
	for {
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // it names the checks that fail; that the time is over says nothing
		}
		select {
		case <-c.apiServer.Done():
			return c.apiServer.Ended()
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready (%w): %w; the end of %s:\n%s",
				ctx.Err(), last, c.apiServer.Log, c.apiServer.LastOutput())
		case <-time.After(pollInterval):
		}
	}
}
