package model

import (
	"net/netip"
	"slices"
)

// Prefixes are sorted, and none overlaps another.
type Prefixes []netip.Prefix

// SortPrefixes returns prefixes that do not overlap, sorted. The list itself stays as it is.
func SortPrefixes(list []netip.Prefix) Prefixes {
	return slices.SortedFunc(slices.Values(list), netip.Prefix.Compare)
}

// Contains reports whether one of them contains an address. It searches: there may be many.
func (p Prefixes) Contains(addr netip.Addr) bool {
	after, _ := slices.BinarySearchFunc(p, addr, func(prefix netip.Prefix, addr netip.Addr) int {
		if prefix.Addr().Compare(addr) <= 0 {
			return -1
		}
		return 1
	})
	return after > 0 && p[after-1].Contains(addr)
}
