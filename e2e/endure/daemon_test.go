package endure_test

import (
	"errors"
	"os/exec"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// metricsAddress is the proxy's default address for metrics.
const metricsAddress = "127.0.0.1:10249"

// daemon is one process of `proxy run` on the node.
type daemon struct {
	*site.Process
	setup *setup
	began time.Time
}

// start starts the proxy without waiting.
func (s *setup) start(args ...string) *daemon {
	s.t.Helper()
	began := time.Now()
	command := exec.Command(s.program, slices.Concat([]string{"run", "--node", s.node.Name}, s.sourceFlags(), args)...)
	return &daemon{site.Start(s.t, s.node.Namespace, command), s, began}
}

// isSynced reports whether the first sync is in the kernel.
func (d *daemon) isSynced() bool { return d.Log.Has("the first sync is in the kernel: ") }

// waitForSync waits for the first sync and returns how long it took from the start.
func (d *daemon) waitForSync() time.Duration {
	d.setup.t.Helper()
	d.WaitFor(d.setup.t, "the first sync", func() error {
		if !d.isSynced() {
			return errors.New("not synced yet")
		}
		return nil
	})
	return time.Since(d.began)
}

// kill kills the proxy.
func (d *daemon) kill() {
	d.setup.t.Helper()
	if err := d.Kill(); err != nil {
		d.setup.t.Fatalf("%v, before it was killed:\n%s", err, d.Log)
	}
	if state := d.State(); state != "signal: killed" {
		d.setup.t.Fatalf("the proxy exited with %s:\n%s", state, d.Log)
	}
}

// failedSyncs returns the error lines of the log.
func (d *daemon) failedSyncs() []string { return d.Log.Lines("level=ERROR") }

// metric returns the sum of the series of a metric with all of the given labels, such as operation="add".
func (d *daemon) metric(name string, labels ...string) int {
	d.setup.t.Helper()
	sum, err := d.Metric(metricsAddress, name, labels...)
	must.Succeed(d.setup.t, err)
	return int(sum)
}
