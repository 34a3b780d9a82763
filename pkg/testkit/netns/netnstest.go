//go:build linux

// Package netns gives a test a network namespace of its own, so that it can load rules into a real kernel without
// touching the machine's.
package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Namespace is an empty network namespace whose loopback is up. It is deleted when the test ends.
type Namespace struct {
	t      testing.TB
	handle netns.NsHandle
}

// New creates a namespace. Without root or without the nft program the test fails with a message: a test that cannot
// run never counts as passed.
func New(t testing.TB) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test creates network namespaces and loads nftables rules into them: run it as root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Fatal("this test reads its rules back with the nft program, which is missing: install the package nftables")
	}
	n := &Namespace{t: t}
	err := withLockedThread(func() error {
		handle, err := netns.New()
		if err != nil {
			return err
		}
		n.handle = handle
		return loopbackUp()
	})
	if err != nil {
		t.Fatalf("create network namespace: %v", err)
	}
	t.Cleanup(func() { _ = n.handle.Close() })
	return n
}

// Do runs f in the namespace, on the caller's goroutine. Sockets that f opens stay in the namespace; goroutines that
// it starts run outside.
func (n *Namespace) Do(f func()) {
	n.t.Helper()
	err := withLockedThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		n.t.Fatalf("enter the test's network namespace: %v", err)
	}
}

// Command returns a program that will run in the namespace if it is started within Do.
func (n *Namespace) Command(name string, args ...string) *exec.Cmd {
	return exec.CommandContext(n.t.Context(), name, args...)
}

// Try runs a program in the namespace and returns its output. Its standard error is part of err.
func (n *Namespace) Try(name string, args ...string) (output string, err error) {
	n.t.Helper()
	return n.run(n.Command(name, args...))
}

// Exec runs a program in the namespace and returns its output. A failure fails the test.
func (n *Namespace) Exec(name string, args ...string) string {
	n.t.Helper()
	return n.mustRun(n.Command(name, args...))
}

// NFT runs nft in the namespace and returns its output. A failure fails the test.
func (n *Namespace) NFT(args ...string) string {
	n.t.Helper()
	return n.Exec("nft", args...)
}

// Load runs `nft -f` in the namespace with the text as its input. A failure fails the test.
func (n *Namespace) Load(text string) {
	n.t.Helper()
	command := n.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(text)
	n.mustRun(command)
}

func (n *Namespace) mustRun(command *exec.Cmd) string {
	n.t.Helper()
	output, err := n.run(command)
	if err != nil {
		n.t.Fatal(err)
	}
	return output
}

func (n *Namespace) run(command *exec.Cmd) (output string, err error) {
	n.t.Helper()
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	n.Do(func() { err = command.Run() })
	if err != nil {
		err = fmt.Errorf("run %v: %w: %s", command.Args, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), err
}

// withLockedThread runs f with the thread locked and returns the thread to its original namespace, even when f ends the
// test. A thread for which that fails stays locked, so that the runtime destroys it with its goroutine.
func withLockedThread(f func() error) error {
	runtime.LockOSThread()
	original, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if netns.Set(original) == nil {
			runtime.UnlockOSThread()
		}
		_ = original.Close()
	}()
	return f()
}

func loopbackUp() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(loopback)
}
