package explain

import (
	"cmp"
	"math"
	"slices"
)

// decimalPlaces sets the precision of numbers for machines, nine decimal places: more than any input has, and fewer
// than where rounding errors begin.
const decimalPlaces = 1e9

// Rounded rounds a number for machines.
func Rounded(x float64) float64 { return math.Round(x*decimalPlaces) / decimalPlaces }

// RoundParts rounds parts of a whole so that their sum is the rounded sum: those with the largest remainders are
// rounded up. None may be negative.
func RoundParts(parts ...*float64) {
	sum, left := 0.0, 0.0
	cuts := make([]float64, len(parts))
	byCut := make([]int, len(parts))
	for i, part := range parts {
		sum += *part
		whole := math.Floor(*part * decimalPlaces)
		cuts[i], byCut[i] = *part*decimalPlaces-whole, i
		left -= whole
		*part = whole
	}
	left += math.Round(sum * decimalPlaces)
	slices.SortStableFunc(byCut, func(a, b int) int { return cmp.Compare(cuts[b], cuts[a]) })
	for _, i := range byCut {
		if left >= 1 && cuts[i] > 0 { // a part of 0 stays 0
			*parts[i]++
			left--
		}
		*parts[i] /= decimalPlaces
	}
}
