package sanitize_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 more zones", 1: "1 more zone", 2: "2 more zones"} {
		if got := sanitize.Count(n, "more zone"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 endpoints are", 1: "1 endpoint is", 2: "2 endpoints are"} {
		if got := sanitize.CountOf(n, "endpoint is", "endpoints are"); got != want {
			t.Errorf("CountOf(%d) = %q, want %q", n, got, want)
		}
	}
}
