package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

func used(keys ...policy.Key) usage {
	all := usage{}
	for _, key := range keys {
		all.add(key, "shop")
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
		used  usage
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
	wanted := used("example.com/z-carried")
	for i := range topologyslice.MaxKeys {
		wanted.add(policy.Key(fmt.Sprintf("example.com/nobody-%02d", i)), "shop")
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
	full := usage{}
	for i := range topologyslice.MaxKeys {
		full.add(policy.Key(fmt.Sprintf("example.com/m-%02d", i)), "shop")
	}
	first, _ := k.choose(at, full, nil, carried)
	for i := range 1000 {
		at = at.Add(time.Second)
		keys, leftOut := k.choose(at, used(policy.Key(fmt.Sprintf("example.com/a-%d", i))), nil, carried)
		if diff := cmp.Diff(first, keys); diff != "" || leftOut != 1 {
			t.Fatalf("keys (-want +got):\n%s%d left out", diff, leftOut)
		}
	}
	if len(k.published) > topologyslice.MaxKeys {
		t.Errorf("%d keys are remembered", len(k.published))
	}
	keys, _ := k.choose(at, used("example.com/z-carried"), nil, carried)
	if !strings.Contains(beyondAlways(keys), "z-carried") {
		t.Errorf("a key that nodes carry finds no place among %q", keys)
	}
}

// TestNobodyKeepsOthersKeysOut: of keys that nodes carry, each Namespace has its share, and one that names another key each
// second moves no more than its share in a day.
func TestNobodyKeepsOthersKeysOut(t *testing.T) {
	places := topologyslice.MaxKeys - len(always)
	carried := map[string]bool{"example.com/rack": true}
	wanted, greedy := usage{}, func(i int) policy.Key { return policy.Key(fmt.Sprintf("example.com/greedy-%03d", i)) }
	for i := range 200 {
		carried[string(greedy(i))] = true
		wanted.add(greedy(i), "greedy")
	}
	var k keyring
	at := time.Unix(0, 0)
	k.choose(at, wanted, nil, carried)
	wanted.add("example.com/rack", "shop")
	wanted.add("example.com/rack", "blog")
	keys, leftOut := k.choose(at, wanted, nil, carried)
	if !slices.Contains(keys, "example.com/rack") || leftOut != 200-places+1 {
		t.Errorf("one key of another Namespace: %d are left out of %q", leftOut, beyondAlways(keys))
	}

	// Another one that never rests.
	for i := range 300 {
		carried[fmt.Sprintf("example.com/restless-%03d", i)] = true
	}
	changes := 0
	for i := range 300 {
		at = at.Add(time.Second)
		now := maps.Clone(wanted)
		now.add(policy.Key(fmt.Sprintf("example.com/restless-%03d", i)), "restless")
		after, _ := k.choose(at, now, nil, carried)
		if !slices.Contains(after, "example.com/rack") {
			t.Fatalf("after %d keys of another Namespace the rack is left out", i+1)
		}
		if !slices.Equal(keys, after) {
			changes++
		}
		keys = after
	}
	if changes == 0 || changes > places/2+1 {
		t.Errorf("300 keys of a Namespace, one after the other, changed the slices %d times, want at most %d", changes, places/2+1)
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
