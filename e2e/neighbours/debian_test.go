package neighbours_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/vicinity-proxy/vicinity/e2e/documents"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// debian is one node's mount namespace for the programs that ./install unpacked. Files that they write disappear with
// it.
type debian struct {
	machine *machine
	keeper  *site.Process
}

// newDebian creates the mount namespace of a node.
func newDebian(m *machine) *debian {
	t := m.testbed.t
	t.Helper()
	cache, err := os.UserCacheDir()
	must.Succeed(t, err)
	layers := filepath.Join(cache, "vicinity", "neighbours")
	if _, err := os.Stat(layers); err != nil {
		t.Fatalf("find programs of Debian packages: %v; run make installed", err)
	}
	d := &debian{machine: m}
	d.keeper = site.Start(t, m.Namespace,
		exec.Command("layers/over", layers, "sh", "-c", "echo ready; exec sleep infinity"))
	d.keeper.WaitFor(t, "the layers of Debian packages", func() error {
		if !d.keeper.Log.Has("ready") {
			return fmt.Errorf("log %q", d.keeper.Log)
		}
		return nil
	})
	return d
}

// inDebian returns the mount namespace for the node's Debian programs, and creates it if necessary.
func (m *machine) inDebian() *debian {
	m.testbed.t.Helper()
	if m.debian == nil {
		m.debian = newDebian(m)
	}
	return m.debian
}

// command returns a command that runs in the mount namespace.
func (d *debian) command(name string, args ...string) *exec.Cmd {
	inside := fmt.Sprintf("--mount=/proc/%d/ns/mnt", d.keeper.PID())
	return exec.Command("nsenter", slices.Concat([]string{inside, name}, args)...)
}

// run runs a program until it exits, and returns its output.
func (d *debian) run(name string, args ...string) string {
	d.machine.testbed.t.Helper()
	output, err := d.machine.Run(d.command(name, args...))
	must.Succeed(d.machine.testbed.t, err)
	return output
}

// runDocumented runs the commands that manifests/coexistence.md has for a program.
func (d *debian) runDocumented(program string) {
	d.machine.testbed.t.Helper()
	for _, line := range documents.Lines(d.machine.testbed.t, "manifests/coexistence.md", "Other programs", program) {
		d.run("sh", "-euc", line)
	}
}

// start starts a daemon, and waits until a step succeeds.
func (d *debian) start(what string, step func() error, name string, args ...string) *site.Process {
	t := d.machine.testbed.t
	t.Helper()
	process := site.Start(t, d.machine.Namespace, d.command(name, args...))
	process.WaitFor(t, what, step)
	return process
}

// tryRun runs a program that may fail.
func (d *debian) tryRun(name string, args ...string) error {
	_, err := d.machine.Run(d.command(name, args...))
	return err
}
