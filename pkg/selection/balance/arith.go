package balance

import "math/bits"

// part returns whole · some / all, rounded down. some is at most all, and all is not 0.
//
// There are no floats here: some processors fuse a multiplication and an addition, and nodes of two kinds would not
// agree.
func part(whole, some, all uint64) uint64 {
	if some == all {
		return whole
	}
	high, low := bits.Mul64(whole, some)
	quotient, _ := bits.Div64(high, low, all)
	return quotient
}
