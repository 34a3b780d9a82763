package balance

import "math/bits"

// mulDiv returns amount · numerator / denominator, rounded down. numerator must be at most denominator, and denominator
// must not be 0.
//
// This package uses no floats: some processors fuse a multiplication and an addition, so nodes with different
// processors would get different results.
func mulDiv(amount, numerator, denominator uint64) uint64 {
	if numerator == denominator {
		return amount
	}
	high, low := bits.Mul64(amount, numerator)
	quotient, _ := bits.Div64(high, low, denominator)
	return quotient
}
