package fair

import (
	"cmp"
	"slices"
)

// Share is how much of the capacity an item takes, and for which Namespace. Weights are not negative.
type Share struct {
	Namespace string
	Weight    int
}

// Order sorts items by the running total of their Namespace: the weight of the item and of all earlier items of the
// same Namespace. Items of one Namespace keep their order; of two with equal totals, the first in items goes first.
//
// A caller takes items in this order and skips those that do not fit. Each of n Namespaces then gets at least all that
// it wants, or an n-th of the capacity minus its own largest item.
func Order[T any](items []T, shareOf func(T) Share) []T {
	return sortByTag(items, shareOf, func(string) int { return 0 }, true)
}

// sortByTag sorts items by a tag: the start value of the item's Namespace, plus the weights of its earlier items, and
// of the item itself if requested.
func sortByTag[T any](items []T, shareOf func(T) Share, start func(namespace string) int, includesItem bool) []T {
	type tagged struct {
		item T
		tag  int
	}
	sums := map[string]int{}
	entries := make([]tagged, len(items))
	for i, item := range items {
		share := shareOf(item)
		sum, isKnown := sums[share.Namespace]
		if !isKnown {
			sum = start(share.Namespace)
		}
		sums[share.Namespace] = sum + share.Weight
		entries[i] = tagged{item, sum}
		if includesItem {
			entries[i].tag += share.Weight
		}
	}
	slices.SortStableFunc(entries, func(a, b tagged) int { return cmp.Compare(a.tag, b.tag) })
	order := make([]T, len(entries))
	for i := range entries {
		order[i] = entries[i].item
	}
	return order
}
