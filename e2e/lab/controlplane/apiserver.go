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
	// readyTimeout bounds the start of the API server, which takes a few seconds on an idle machine. On a machine that was
	// busy with other tests, 90 s were too short.
	readyTimeout = 5 * time.Minute
	// stopTimeout is the time that an API server has to end its watches.
	stopTimeout  = 10 * time.Second
	pollInterval = 50 * time.Millisecond
)

var errAlreadyRunning = errors.New("the API server is already running")

// StartAPIServer starts the API server after StopAPIServer or KillAPIServer, with the same address and data, and
// returns when it is ready. Flags are appended to the usual ones, for this run only.
func (c *ControlPlane) StartAPIServer(ctx context.Context, flags ...string) error {
	if c.apiServer != nil {
		return errAlreadyRunning
	}
	program := c.config.Programs.Path(binaries.Kubernetes, apiServer)
	server, err := c.launch(apiServer, program, append(c.apiServerFlags(), flags...))
	if err != nil {
		return err
	}
	c.apiServer = server
	return c.waitReady(ctx)
}

// StopAPIServer terminates the API server gracefully, as an upgrade does, and waits for its end. Everything else keeps
// running.
func (c *ControlPlane) StopAPIServer() error {
	if c.apiServer == nil {
		return nil
	}
	err := c.apiServer.Stop(stopTimeout)
	c.apiServer = nil
	return err
}

// KillAPIServer kills the API server. Everything else keeps running.
func (c *ControlPlane) KillAPIServer() {
	if c.apiServer != nil {
		kill(c.apiServer)
	}
	c.apiServer = nil
}

// kill kills a process. We may kill our own children, so there is no error to handle.
func kill(p *process.Process) { _ = p.Kill() }

// waitReady polls /readyz until the API server is ready.
func (c *ControlPlane) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
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
			last = err // names the failed checks, unlike the error of the context
		}
		select {
		case <-c.apiServer.Done():
			return c.apiServer.ExitError()
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready (%w): %w; the end of %s:\n%s",
				ctx.Err(), last, c.apiServer.Log, c.apiServer.LastOutput())
		case <-time.After(pollInterval):
		}
	}
}
