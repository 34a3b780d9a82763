//go:build linux

package reserve_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
)

// TestReservedPortIsNotAssigned checks that the kernel, with two ports to choose from, assigns the other one or
// none. A server that names the port gets it, repeatedly, and between servers connections are refused.
func TestReservedPortIsNotAssigned(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::", "::1"} {
		t.Run(host, func(t *testing.T) {
			namespace := netns.New(t)
			namespace.Exec("sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=40000 40001")
			namespace.Do(func() { expectNotAssigned(t, netip.MustParseAddr(host)) })
		})
	}
}

func expectNotAssigned(t *testing.T, addr netip.Addr) {
	t.Helper()
	reserved := reserve.At(t, addr)
	target := netip.AddrPortFrom(reserve.Loopback, reserved.Port())
	if addr.Is6() && !addr.IsUnspecified() {
		target = reserved
	}
	if _, err := net.Dial("tcp", target.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a server: %v, want connection refused", err)
	}
	for _, listenAddr := range []string{"[::]:0", "127.0.0.1:0", "[::1]:0"} {
		for range 20 {
			other, err := net.Listen("tcp", listenAddr)
			if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
				t.Fatal(err)
			}
			if err != nil {
				continue
			}
			if got := netip.MustParseAddrPort(other.Addr().String()).Port(); got == reserved.Port() && conflicts(listenAddr, addr) {
				t.Errorf("a server that listens at %s got the port", listenAddr)
			}
			must.Succeed(t, other.Close())
		}
	}
	for range 2 {
		server, err := net.Listen("tcp", reserved.String())
		must.Succeed(t, err)
		client, err := net.Dial("tcp", target.String())
		must.Succeed(t, err)
		if clientPort := netip.MustParseAddrPort(client.LocalAddr().String()).Port(); clientPort == reserved.Port() {
			t.Error("a client got the port")
		}
		must.Succeed(t, client.(*net.TCPConn).SetLinger(0))
		must.Succeed(t, client.Close())
		must.Succeed(t, server.Close())
	}
}

// conflicts reports whether a server at one address, or at all addresses, conflicts with one at the other.
func conflicts(listenAddr string, addr netip.Addr) bool {
	host := netip.MustParseAddrPort(listenAddr)
	return host.Addr().IsUnspecified() || addr.IsUnspecified() || host.Addr() == addr
}
