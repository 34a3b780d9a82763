package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
)

// isDeclaredLike reports whether a set is declared with the same types and flags.
func (s Set) isDeclaredLike(other Set) bool {
	return slices.Equal(s.Key, other.Key) && slices.Equal(s.Value, other.Value) && s.Dynamic == other.Dynamic && s.Interval == other.Interval
}

// checkRanges returns an element and an error if two ranges of an Interval set overlap whose other fields are the same. The
// kernel refuses a range that begins or ends inside another one; one that encloses another with room on both sides it overlooks
// (nft_pipapo_insert looks only the two ends up), and then either may be found.
func (s *filledSet) checkRanges() (overlaps *Element, err error) {
	if !s.Interval {
		return nil, nil
	}
	ranges := map[Tuple][]netip.Prefix{}
	for _, element := range s.sorted() {
		prefix, rest := element.Key.prefix(), element.Key
		rest.Source, rest.Bits = netip.Addr{}, 0
		if at := slices.IndexFunc(ranges[rest], prefix.Overlaps); at >= 0 {
			return &element, fmt.Errorf("%s overlaps %s: %w", element.Key.Text(s.Key), ranges[rest][at], ErrExist)
		}
		ranges[rest] = append(ranges[rest], prefix)
	}
	return nil, nil
}
