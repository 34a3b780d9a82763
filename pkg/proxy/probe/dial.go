//go:build linux

package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
)

// Dial connects from a new port and resets the connection at once: one that is closed would stay in TIME_WAIT for a
// minute. It returns the result, and how long it took.
func Dial(ctx context.Context, addr netip.AddrPort, within time.Duration) (reachability.Kind, time.Duration) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(within))
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, addr)
	took := time.Since(began)
	if err == nil {
		_ = connection.SetLinger(0)
		_ = connection.Close()
	}
	return kindOf(err), took
}

// kindOf says what an error means. A dial that this machine could not even try says nothing about the other one.
func kindOf(err error) reachability.Kind {
	switch {
	case err == nil:
		return reachability.Accepted
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return reachability.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EHOSTUNREACH),
		errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTDOWN):
		return reachability.NoAnswer
	}
	var failed net.Error
	if errors.As(err, &failed) && failed.Timeout() {
		return reachability.NoAnswer
	}
	return reachability.NotDialled
}
