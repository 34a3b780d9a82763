//go:build linux

package netns

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
)

func TestNamespaceIsIsolated(t *testing.T) {
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Close() }()
	one, other := New(t), New(t)

	one.NFT("add table ip mine")

	if got := one.NFT("list ruleset"); !strings.Contains(got, "table ip mine") {
		t.Errorf("the namespace lists %q, want the table that was added to it", got)
	}
	if got := other.NFT("list ruleset"); got != "" {
		t.Errorf("another namespace lists %q, want nothing", got)
	}
	after, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = after.Close() }()
	if !before.Equal(after) {
		t.Errorf("the test's thread is in %v, want %v", after, before)
	}
}

func TestDoReachesLoopback(t *testing.T) {
	namespace := New(t)
	namespace.Do(func() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatalf("connect to the loopback of the namespace: %v", err)
		}
		_ = connection.Close()
	})
}

func TestTryReturnsStderr(t *testing.T) {
	output, err := New(t).Try("nft", "list table ip absent")
	if output != "" || err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("listing an absent table: %q, %v; want no output and the error of nft", output, err)
	}
}
