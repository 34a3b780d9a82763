package main

import "testing"

func TestBytesMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		anywhere, near traffic
		mistakes       int
	}{
		"as expected":                                      {traffic{600, 546_000, 364_000}, traffic{600, 546_000, 0}, 0},
		"within the noise":                                 {traffic{600, 546_000, 330_000}, traffic{600, 546_000, 0}, 0},
		"some bytes still leave their zone":                {traffic{600, 546_000, 364_000}, traffic{600, 546_000, 910}, 1},
		"nothing was counted with the annotation":          {traffic{600, 546_000, 364_000}, traffic{}, 1},
		"nothing was counted without the annotation":       {traffic{}, traffic{600, 546_000, 0}, 1},
		"only half left their zone without the annotation": {traffic{600, 546_000, 273_000}, traffic{600, 546_000, 0}, 1},
	} {
		if found := bytesMistakes(test.anywhere, test.near); len(found) != test.mistakes {
			t.Errorf("%s: %q", name, found)
		}
	}
}
