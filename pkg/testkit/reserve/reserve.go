//go:build linux

// Package reserve reserves TCP ports for a test: for a server that starts later or repeatedly, or for one that never
// does.
//
// Without a reservation, the kernel may assign a port that was just free to another socket: of a test that runs in
// parallel, or of a client.
package reserve

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/port"
)

// Loopback is 127.0.0.1.
var Loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// At reserves a port at an address, in the network namespace of the calling thread, until the test ends. The address ::
// means all addresses of both families. The kernel assigns the port to no other socket. A server can listen on it
// explicitly if it sets SO_REUSEADDR, as every Go program does. While none listens, connections are refused.
func At(t testing.TB, addr netip.Addr) netip.AddrPort {
	t.Helper()
	reserved, err := port.Reserve(addr)
	must.Succeed(t, err)
	t.Cleanup(reserved.Close)
	return reserved.Addr
}

// OnLoopback reserves a port of 127.0.0.1 until the test ends.
func OnLoopback(t testing.TB) netip.AddrPort {
	t.Helper()
	return At(t, Loopback)
}
