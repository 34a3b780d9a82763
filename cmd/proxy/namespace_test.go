//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// testNamespace is an empty network namespace whose loopback is up. It goes away with the test.
type testNamespace struct {
	t      testing.TB
	handle netns.NsHandle
}

// newNamespace makes a namespace. Without root or nft the test fails: one that cannot run never counts as passed.
func newNamespace(t testing.TB) *testNamespace {
	t.Helper()
	n := &testNamespace{t: t}
	err := onOwnThread(func() error {
		handle, err := netns.New()
		if err != nil {
			return fmt.Errorf("making a network namespace (are you root?): %w", err)
		}
		n.handle = handle
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(loopback)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.handle.Close() })
	return n
}

// Do runs f in the namespace. Sockets that f opens by itself stay there; goroutines that it starts run elsewhere.
func (n *testNamespace) Do(f func()) {
	err := onOwnThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		n.t.Errorf("entering the test's network namespace: %v", err)
	}
}

// try runs nft in the namespace and returns what it printed.
func (n *testNamespace) try(args ...string) (output string, err error) {
	n.Do(func() {
		var text []byte
		text, err = exec.CommandContext(n.t.Context(), "nft", args...).CombinedOutput()
		output = string(text)
	})
	return output, err
}

// NFT is try for what must not fail.
func (n *testNamespace) NFT(args ...string) string {
	n.t.Helper()
	output, err := n.try(args...)
	if err != nil {
		n.t.Fatalf("nft %v: %v: %s", args, err, output)
	}
	return output
}

// onOwnThread runs f with the thread locked, and puts the thread back into the namespace it came from. A thread that cannot be
// put back stays locked, so that the runtime throws it away.
func onOwnThread(f func() error) error {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if netns.Set(before) == nil {
			runtime.UnlockOSThread()
		}
		_ = before.Close()
	}()
	return f()
}
