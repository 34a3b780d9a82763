package explain

import (
	"cmp"
	"math"
	"slices"
)

// decimalScale sets the precision of numbers for machines, nine decimal places: more than any input has, and fewer
// than where rounding errors begin.
const decimalScale = 1e9

// Rounded rounds a number for machines.
func Rounded(x float64) float64 { return math.Round(x*decimalScale) / decimalScale }

// RoundParts rounds parts of a whole so that their sum is the rounded sum: those with the largest remainders are
// rounded up. None may be negative.
func RoundParts(parts ...*float64) {
	sum, remaining := 0.0, 0.0
	fractions := make([]float64, len(parts))
	byFraction := make([]int, len(parts))
	for i, part := range parts {
		sum += *part
		whole := math.Floor(*part * decimalScale)
		fractions[i], byFraction[i] = *part*decimalScale-whole, i
		remaining -= whole
		*part = whole
	}
	remaining += math.Round(sum * decimalScale)
	slices.SortStableFunc(byFraction, func(a, b int) int { return cmp.Compare(fractions[b], fractions[a]) })
	for _, i := range byFraction {
		if remaining >= 1 && fractions[i] > 0 { // a part of 0 stays 0
			*parts[i]++
			remaining--
		}
		*parts[i] /= decimalScale
	}
}
