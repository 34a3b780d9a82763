//go:build linux

package interfaces

import (
	"context"
	"log/slog"
	"net/netip"
)

// Now returns what Watch delivers first.
func Now(ctx context.Context, log *slog.Logger) (addrs []netip.Addr, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = Watch(ctx, log, func(delivered []netip.Addr) {
		addrs = delivered
		cancel()
	})
	return addrs, err
}
