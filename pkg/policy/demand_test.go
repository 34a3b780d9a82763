package policy

import "testing"

func TestParseDemand(t *testing.T) {
	for value, want := range map[string]uint32{"0": 0, "1": 1, "07": 7, "100": 100} {
		if got, valid := ParseDemand(value); got != want || !valid {
			t.Errorf("%q is %d, valid: %t; want %d", value, got, valid, want)
		}
	}
	for _, value := range []string{"", "101", "-1", "+1", "1.5", "1_0", "0x1", "ten", " 1", "99999999999999999999"} {
		if got, valid := ParseDemand(value); got != 0 || valid {
			t.Errorf("%q is %d, valid: %t; want 0, invalid", value, got, valid)
		}
	}
}
