package fair

import (
	"cmp"
	"slices"
)

// Share is what one thing takes of what is shared, and for which Namespace. Weights are not negative.
type Share struct {
	Namespace string
	Weight    int
}

// Order sorts by what a Namespace would have in all, if it got this and everything that comes before it in items. Things
// of one Namespace stay in their order; of two that are equal, the one that comes first in items goes first.
//
// Whoever takes them in this order, and passes over what does not fit, gives each of n Namespaces at least all that it
// wants, or an n-th of the room less the largest thing of its own.
func Order[T any](items []T, of func(T) Share) []T {
	return sorted(items, of, func(string) int { return 0 }, true)
}

// sorted sorts by the sum of weights of a Namespace, from where it begins: with the thing itself, or only what is before it.
func sorted[T any](items []T, of func(T) Share, begin func(namespace string) int, withItself bool) []T {
	type tagged struct {
		item T
		tag  int
	}
	sums := map[string]int{}
	all := make([]tagged, len(items))
	for i, item := range items {
		share := of(item)
		sum, isKnown := sums[share.Namespace]
		if !isKnown {
			sum = begin(share.Namespace)
		}
		sums[share.Namespace] = sum + share.Weight
		all[i] = tagged{item, sum}
		if withItself {
			all[i].tag += share.Weight
		}
	}
	slices.SortStableFunc(all, func(a, b tagged) int { return cmp.Compare(a.tag, b.tag) })
	order := make([]T, len(all))
	for i := range all {
		order[i] = all[i].item
	}
	return order
}
