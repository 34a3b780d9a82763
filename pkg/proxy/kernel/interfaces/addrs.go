//go:build linux

package interfaces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Addrs returns the addresses of all interfaces, as Watch first delivers them.
func Addrs(ctx context.Context, log *slog.Logger) (addrs []netip.Addr, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = Watch(ctx, log, func(delivered []netip.Addr) {
		addrs = delivered
		cancel()
	})
	return addrs, err
}

// AddrsOfLink returns the addresses of one interface, sorted; nil if no interface has the name.
func AddrsOfLink(name string) ([]netip.Addr, error) {
	link, err := netlink.LinkByName(name)
	if _, isMissing := errors.AsType[netlink.LinkNotFoundError](err); isMissing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", name, err)
	}
	return listFrom(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
}
