//go:build linux

package interfaces

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// listAttempts limits how often the addresses are listed again because they changed meanwhile.
const listAttempts = 10

// list returns the addresses of all interfaces, of both families and any scope, loopback included, sorted, each once.
// An IPv6 link-local address has no zone. An empty list is not nil.
//
// The state of an address does not matter, as in kube-proxy: neither whether its interface is up nor, with IPv6,
// whether it is tentative or a duplicate. The kernel accepts no packet for an address that it may not use, so listing
// it early does no harm, and a node port works as soon as the kernel accepts the first packet.
//
// If addresses keep changing, it returns those that it found: a notification of a later change makes the watch list
// them again.
func list(handle *netlink.Handle) ([]netip.Addr, error) {
	return listFrom(func() ([]netlink.Addr, error) { return handle.AddrList(nil, netlink.FAMILY_ALL) })
}

func listFrom(dump func() ([]netlink.Addr, error)) ([]netip.Addr, error) {
	var seen []netlink.Addr // by all attempts: each may lack some
	for range listAttempts {
		found, err := dump()
		switch {
		case err == nil:
			return addrsOf(found), nil
		case !errors.Is(err, netlink.ErrDumpInterrupted):
			return nil, fmt.Errorf("list interface addresses: %w", err)
		}
		seen = append(seen, found...)
	}
	return addrsOf(seen), nil
}

// addrsOf returns the IP addresses. The kernel lists other kinds too (Phonet, MCTP).
func addrsOf(found []netlink.Addr) []netip.Addr {
	addrs := make([]netip.Addr, 0, len(found))
	for _, linkAddr := range found {
		if linkAddr.IPNet == nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(linkAddr.IP); ok {
			addrs = append(addrs, addr.Unmap())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
