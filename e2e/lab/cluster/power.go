package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/node"
)

// Run turns nodes off and on according to the files of Folder.Off, until the context ends. Failures are logged, and
// retried when the file changes.
func (c *Cluster) Run(ctx context.Context, log io.Writer) {
	failedTarget := map[string]bool{} // for each node whose last attempt failed: whether it was to be turned off
	for {
		for _, m := range c.nodes {
			_, err := os.Stat(c.config.Folder.Off(m.config.Name))
			off := !errors.Is(err, fs.ErrNotExist)
			if last, ok := failedTarget[m.config.Name]; off == m.off() || ok && last == off {
				continue
			}
			delete(failedTarget, m.config.Name)
			if err := c.setPower(ctx, m, off); err != nil {
				fmt.Fprintln(log, err)
				failedTarget[m.config.Name] = off
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollInterval):
		}
	}
}

// setPower turns a node on, or off if off is true.
func (c *Cluster) setPower(ctx context.Context, m *machine, off bool) error {
	if off {
		if err := c.powerOff(m); err != nil {
			return fmt.Errorf("turn off %s: %w", m.config.Name, err)
		}
		return nil
	}
	if err := c.powerOn(ctx, m); err != nil {
		return fmt.Errorf("turn on %s: %w", m.config.Name, err)
	}
	return nil
}

func (m *machine) off() bool { return m.process == nil }

// exited is closed when the node's first process has exited without powerOff. It is nil, and so blocks, while the node
// is off.
func (m *machine) exited() <-chan struct{} {
	if m.off() {
		return nil
	}
	return m.process.Done()
}

// powerOff kills a node and removes its disk: when turned on again, it is a new machine with the old name.
func (c *Cluster) powerOff(m *machine) error {
	if err := m.network.PowerOff(m.process.Kill); err != nil {
		return err
	}
	m.process = nil
	return errors.Join(os.RemoveAll(m.config.Root), os.RemoveAll(c.config.Folder.PID(m.config.Name)))
}

// powerOn starts the node again and waits until it is ready.
func (c *Cluster) powerOn(ctx context.Context, m *machine) (err error) {
	start := time.Now()
	if err := m.network.PowerOn(); err != nil {
		return err
	}
	if m.process, err = node.Start(m.config); err != nil {
		return err
	}
	if err := c.waitForReady(ctx, []*fabric.Node{m.network}, start); err != nil {
		return err
	}
	return c.recordPID(m)
}
