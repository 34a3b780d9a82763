package explain

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// TestRoundedPartsSumUp: the sum of the rounded parts is exact in decimal.
func TestRoundedPartsSumUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		parts, sum := make([]float64, 1+random.IntN(40)), 0.0
		for i := range parts {
			if random.IntN(4) > 0 {
				parts[i] = random.Float64()
			}
			sum += parts[i]
		}
		before, pointers := make([]float64, len(parts)), make([]*float64, len(parts))
		for i := range parts {
			if sum > 0 {
				parts[i] /= sum
			}
			before[i], pointers[i] = parts[i], &parts[i]
		}
		RoundParts(pointers...)
		units := 0
		for i, part := range parts {
			_, fraction, _ := strings.Cut(strconv.FormatFloat(part, 'f', -1, 64), ".")
			unit, err := strconv.Atoi((fraction + "000000000")[:9])
			if len(fraction) > 9 || err != nil || part-before[i] > 1e-9 || before[i]-part > 1e-9 || before[i] == 0 && part != 0 {
				t.Fatalf("round %d: %v was rounded to %v", round, before[i], part)
			}
			units += unit + int(part)*1_000_000_000
		}
		if units != 1_000_000_000 && sum > 0 {
			t.Fatalf("round %d: %v sum up to %d billionths", round, parts, units)
		}
	}
}

func TestRoundingKeepsExactNumbers(t *testing.T) {
	for _, x := range []float64{0, 1, 0.8, 0.1, 1.2, 0.000001} {
		part := x
		if RoundParts(&part); part != x || Rounded(x) != x {
			t.Errorf("RoundParts changes %v to %v, and Rounded to %v; want it unchanged", x, part, Rounded(x))
		}
	}
	if got := Rounded(0.1 + 0.2); got != 0.3 {
		t.Errorf("Rounded(0.1 + 0.2) = %v, want 0.3", got)
	}
}
