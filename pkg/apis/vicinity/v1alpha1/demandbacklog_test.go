package v1alpha1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDemandBacklogIsParsedAsWritten(t *testing.T) {
	for _, want := range []DemandBacklog{
		{}, {Waiting: 40, LongestSeconds: 340, Services: map[string]int64{"shop/web": 340, "shop/db": 0}}, {Waiting: 1},
	} {
		got, err := ParseDemandBacklog(want.String())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v, backlog (-want +got):\n%s", err, diff)
		}
	}
}

// TestDemandBacklogIsBounded checks short names, and the longest ones that Kubernetes allows.
func TestDemandBacklogIsBounded(t *testing.T) {
	for length, want := range map[int]int{20: MaxBacklogServices, 2*63 + 1: 13} {
		backlog := DemandBacklog{Waiting: 1_000_000, LongestSeconds: 1_000_000_000, Services: map[string]int64{}}
		for number := range 100 {
			if name := fmt.Sprintf("shop/%0*d", length-5, number); backlog.Fits(name) {
				backlog.Services[name] = 1_000_000_000
			}
		}
		if text := backlog.String(); len(text) > MaxDemandBacklog || len(backlog.Services) != want {
			t.Errorf("names of %d bytes: %d of them in %d bytes, want %d", length, len(backlog.Services), len(text), want)
		}
	}
}

func TestInvalidDemandBacklogs(t *testing.T) {
	for text, want := range map[string]string{
		"many":                    "invalid character 'm'",
		`{"waiting":"many"}`:      "cannot unmarshal string",
		`{"services":["a"]}`:      "cannot unmarshal array",
		strings.Repeat(" ", 2049): "2049 bytes, at most 2048 allowed",
	} {
		if got, err := ParseDemandBacklog(text); err == nil || !strings.Contains(err.Error(), want) || got.Waiting != 0 {
			t.Errorf("ParseDemandBacklog(%.20q) = %+v, %v, want the error %q", text, got, err, want)
		}
	}
}
