package publish

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

func used(keys ...policy.Key) map[policy.Key]bool {
	all := map[policy.Key]bool{}
	for _, key := range keys {
		all[key] = true
	}
	return all
}

// beyondAlways are the keys that are there because somebody uses them.
func beyondAlways(keys []string) string {
	var others []string
	for _, key := range keys {
		if !isAlways(key) {
			others = append(others, key)
		}
	}
	return strings.Join(others, " ")
}

func isAlways(key string) bool {
	for _, one := range always {
		if string(one) == key {
			return true
		}
	}
	return false
}

func TestAKeyIsPublishedWhileItIsUsedAndADayLonger(t *testing.T) {
	const rack, row = "example.com/rack", "example.com/row"
	var k keyring
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after time.Duration
		used  map[policy.Key]bool
		want  string
	}{
		{0, nil, row}, // an earlier leader published it
		{time.Second, used(rack, policy.Zone, policy.Hostname, policy.AnyNode), rack + " " + row},
		{time.Hour, nil, rack + " " + row},
		{23*time.Hour - 500*time.Millisecond, nil, rack},
		{time.Minute, used(rack), rack},
		{24 * time.Hour, nil, rack},
		{time.Second, nil, ""},
	} {
		at = at.Add(step.after)
		keys, leftOut := k.choose(at, step.used, []string{row}, nil)
		if diff := cmp.Diff(step.want, beyondAlways(keys)); diff != "" || leftOut != 0 {
			t.Errorf("at %s: keys (-want +got):\n%s%d left out", at, diff, leftOut)
		}
	}
}

func TestKeysThatNodesCarryTakeThePlacesFirst(t *testing.T) {
	var k keyring
	wanted := map[policy.Key]bool{"example.com/z-carried": true}
	for i := range topologyslice.MaxKeys {
		wanted[policy.Key(fmt.Sprintf("example.com/nobody-%02d", i))] = true
	}
	keys, leftOut := k.choose(time.Unix(0, 0), wanted, nil, map[string]bool{"example.com/z-carried": true})
	if len(keys) != topologyslice.MaxKeys || leftOut != 1+len(always) {
		t.Errorf("%d keys, %d left out, want %d and %d", len(keys), leftOut, topologyslice.MaxKeys, 1+len(always))
	}
	if !strings.Contains(beyondAlways(keys), "z-carried") {
		t.Errorf("the key that nodes carry is left out of %q", keys)
	}
}

// TestNobodyMovesKeysAround: whatever keys users name that no node carries, the others stay, and nothing piles up.
func TestNobodyMovesKeysAround(t *testing.T) {
	var k keyring
	carried := map[string]bool{"example.com/z-carried": true}
	at := time.Unix(0, 0)
	full := map[policy.Key]bool{}
	for i := range topologyslice.MaxKeys {
		full[policy.Key(fmt.Sprintf("example.com/m-%02d", i))] = true
	}
	first, _ := k.choose(at, full, nil, carried)
	for i := range 1000 {
		at = at.Add(time.Second)
		keys, leftOut := k.choose(at, used(policy.Key(fmt.Sprintf("example.com/a-%d", i))), nil, carried)
		if diff := cmp.Diff(first, keys); diff != "" || leftOut != 1 {
			t.Fatalf("keys (-want +got):\n%s%d left out", diff, leftOut)
		}
	}
	if len(k.lastUsed) > topologyslice.MaxKeys {
		t.Errorf("%d keys are remembered", len(k.lastUsed))
	}
	keys, _ := k.choose(at, used("example.com/z-carried"), nil, carried)
	if !strings.Contains(beyondAlways(keys), "z-carried") {
		t.Errorf("a key that nodes carry finds no place among %q", keys)
	}
}

func TestANodeIsDescribedByPublishedKeysAlone(t *testing.T) {
	labels := map[string]string{"zone": "a", "rack": "r1", "secret": "x"}
	if diff := cmp.Diff(map[string]string{"zone": "a", "rack": "r1"}, describe(labels, []string{"rack", "row", "zone"})); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got := describe(labels, []string{"row"}); got != nil {
		t.Errorf("labels %v, want none", got)
	}
}
