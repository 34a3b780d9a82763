package model

import (
	"net/netip"
	"slices"
)

// Prefixes are sorted prefixes that do not overlap.
type Prefixes []netip.Prefix

// SortPrefixes returns a sorted copy of prefixes that do not overlap.
func SortPrefixes(prefixes []netip.Prefix) Prefixes {
	return slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare)
}

// Contains reports whether a prefix contains the address. It uses a binary search, because there may be many.
func (p Prefixes) Contains(addr netip.Addr) bool {
	index, _ := slices.BinarySearchFunc(p, addr, func(prefix netip.Prefix, addr netip.Addr) int {
		if prefix.Addr().Compare(addr) <= 0 {
			return -1
		}
		return 1
	})
	return index > 0 && p[index-1].Contains(addr)
}
