package main

import "testing"

func TestBytesThatCrossZonesAreMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		anywhere, near traffic
		mistakes       int
	}{
		"as it should be":                        {traffic{600, 546_000, 364_000}, traffic{600, 546_000, 0}, 0},
		"as far from it as chance may lead":      {traffic{600, 546_000, 330_000}, traffic{600, 546_000, 0}, 0},
		"some still cross":                       {traffic{600, 546_000, 364_000}, traffic{600, 546_000, 910}, 1},
		"nothing was counted with the zone":      {traffic{600, 546_000, 364_000}, traffic{}, 1},
		"nothing was counted without it":         {traffic{}, traffic{600, 546_000, 0}, 1},
		"half crossed without it, which is less": {traffic{600, 546_000, 273_000}, traffic{600, 546_000, 0}, 1},
	} {
		if found := bytesMistakes(test.anywhere, test.near); len(found) != test.mistakes {
			t.Errorf("%s: %q", name, found)
		}
	}
}
