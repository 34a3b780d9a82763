//go:build linux

// Package reserve keeps TCP ports for a test: for a server that is about to start, also once more, or for one that never does.
//
// A port that was free a moment ago, and is not held, is given to whoever asks the kernel next: another test that runs
// beside this one, or a client that dials.
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
// stands for all, of both families. Nobody gets the port by chance. A server that names it gets it, if it sets SO_REUSEADDR,
// as every Go program does; while none listens, connections are refused.
func At(t testing.TB, at netip.Addr) netip.AddrPort {
	t.Helper()
	reserved, err := port.Reserve(at)
	must.Succeed(t, err)
	t.Cleanup(reserved.Close)
	return reserved.Addr
}

// OnLoopback reserves a port of 127.0.0.1 until the test ends.
func OnLoopback(t testing.TB) netip.AddrPort {
	t.Helper()
	return At(t, Loopback)
}
