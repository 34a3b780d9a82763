//go:build linux

package interfaces

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// UnresolvedNeighbours returns the addresses of neighbours without a link-layer address (NUD_INCOMPLETE, NUD_FAILED).
// If the kernel's list changes while it is read, some may be missing.
func UnresolvedNeighbours() (map[netip.Addr]bool, error) {
	neighbours, err := netlink.NeighList(0, 0)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	addrs := map[netip.Addr]bool{}
	for i := range neighbours {
		if addr, isAddr := netip.AddrFromSlice(neighbours[i].IP); isAddr && neighbours[i].State&(unix.NUD_INCOMPLETE|unix.NUD_FAILED) != 0 {
			addrs[addr.Unmap()] = true
		}
	}
	return addrs, nil
}
