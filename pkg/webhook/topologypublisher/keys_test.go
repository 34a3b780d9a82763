package topologypublisher

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

func used(keys ...policy.Key) keyUsage {
	all := keyUsage{}
	for _, key := range keys {
		all.add(key, false)
	}
	return all
}

// beyondAlways returns the keys that are published because they are in use.
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
	for _, one := range builtinKeys {
		if string(one) == key {
			return true
		}
	}
	return false
}

// noon is when the tests start.
var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// key returns a key of some Namespaces.
func key(name string, number int) policy.Key {
	return policy.Key(fmt.Sprintf("example.com/%s-%03d", name, number))
}

// carry returns keys that nodes have.
func carry(keys ...policy.Key) map[string]bool {
	carried := map[string]bool{}
	for _, key := range keys {
		carried[string(key)] = true
	}
	return carried
}

// rounds calls choose of a key set at successive times, and counts how often the keys change.
type rounds struct {
	ring        *keySet
	at          time.Time
	keys        []string
	pendingKeys []pendingKey
	changes     int
}

// begin returns a leader that finds some keys published.
func begin(at time.Time, published ...string) *rounds {
	r := &rounds{ring: newKeySet(at, published), at: at}
	r.keys = r.ring.keys()
	return r
}

func (r *rounds) choose(used keyUsage, carried map[string]bool) {
	before := slices.Clone(r.keys)
	r.pendingKeys = r.ring.choose(r.at, used, carried)
	if r.keys = r.ring.keys(); !slices.Equal(before, r.keys) {
		r.changes++
	}
}

func (r *rounds) has(key policy.Key) bool { return slices.Contains(r.keys, string(key)) }

func TestAKeyIsPublishedWhileItIsUsedAndADayLonger(t *testing.T) {
	const rack, row = "example.com/rack", "example.com/row"
	r := begin(noon, row) // an earlier leader published it
	for _, step := range []struct {
		after time.Duration
		used  keyUsage
		want  string
	}{
		{0, nil, row},
		{time.Second, used(rack, policy.Zone, policy.Hostname, policy.AnyNode), rack + " " + row},
		{time.Hour, nil, rack + " " + row},
		{23*time.Hour - 500*time.Millisecond, nil, rack},
		{time.Minute, used(rack), rack},
		{24 * time.Hour, nil, rack},
		{time.Second, nil, ""},
	} {
		r.at = r.at.Add(step.after)
		r.choose(step.used, nil)
		if diff := cmp.Diff(step.want, beyondAlways(r.keys)); diff != "" || len(r.pendingKeys) != 0 {
			t.Errorf("at %s: keys (-want +got):\n%spending: %v", r.at, diff, r.pendingKeys)
		}
	}
}

func TestKeysOfNodesTakeTheQuotaFirst(t *testing.T) {
	wanted := used("example.com/z-carried")
	for i := range topologyslice.MaxKeys {
		wanted.add(key("nobody", i), false)
	}
	r := begin(noon)
	r.choose(wanted, carry("example.com/z-carried"))
	if len(r.keys) != topologyslice.MaxKeys || len(r.pendingKeys) != 1+len(builtinKeys) {
		t.Errorf("%d keys, %d pending, want %d and %d", len(r.keys), len(r.pendingKeys), topologyslice.MaxKeys, 1+len(builtinKeys))
	}
	if !r.has("example.com/z-carried") {
		t.Errorf("the key of a node is missing in %q", r.keys)
	}
	if first := r.pendingKeys[0]; !first.until.IsZero() {
		t.Errorf("first pending key: %+v", first)
	}
}

// TestTheFirstKeyKeepsItsQuota checks this for any other keys that no node has, and that no state accumulates.
func TestTheFirstKeyKeepsItsQuota(t *testing.T) {
	r, carried, full := begin(noon), carry("example.com/z-carried"), keyUsage{}
	for i := range topologyslice.MaxKeys {
		full.add(key("m", i), false)
	}
	r.choose(full, carried)
	for i := range 1000 {
		r.at = r.at.Add(time.Second)
		r.choose(used(key("a", i)), carried)
	}
	if r.changes != 1 || len(r.pendingKeys) != 1 {
		t.Errorf("%d changes, pending %v", r.changes, r.pendingKeys)
	}
	if len(r.ring.states) > topologyslice.MaxKeys {
		t.Errorf("too many key states: %+v", r.ring)
	}
	r.choose(used("example.com/z-carried"), carried)
	if !r.has("example.com/z-carried") {
		t.Errorf("the key of a node is missing in %q", r.keys)
	}
}

// attack is a user who names different keys every second, all of them keys that nodes have.
type attack struct {
	random  *rand.Rand
	carried map[string]bool
	keys    int
}

func newAttack(seed uint64, keys int) attack {
	a := attack{rand.New(rand.NewPCG(seed, 0)), map[string]bool{}, keys}
	for i := range keys {
		a.carried[string(key("k", i))] = true
	}
	return a
}

// edit returns up to 80 keys.
func (a attack) edit() keyUsage {
	named := keyUsage{}
	for range a.random.IntN(80) {
		named.add(key("k", a.random.IntN(a.keys)), false)
	}
	return named
}

// TestAnEditASecondForAnHour checks that changes of the published keys stay within the budget, and that a key of the
// administrator waits only for the budget.
func TestAnEditASecondForAnHour(t *testing.T) {
	for _, keys := range []int{80, 2000} {
		for seed := range uint64(2) {
			a, r := newAttack(seed, keys), begin(noon)
			wanted, got := 600*time.Second, time.Duration(0)
			for second := range 3600 {
				r.at = noon.Add(time.Duration(second) * time.Second)
				named := a.edit()
				since := r.at.Sub(noon)
				if since >= wanted {
					named.add("example.com/rack", true)
				}
				if r.choose(named, a.carried); got == 0 && r.has("example.com/rack") {
					got = since
				}
			}
			if r.changes > 10 || r.changes < 2 {
				t.Errorf("%d keys, seed %d: %d changes in an hour, want 2 to 10", keys, seed, r.changes)
			}
			if got == 0 || got-wanted > refill || !r.has("example.com/rack") {
				t.Errorf("%d keys, seed %d: the administrator's key is published after %s, want at most %s", keys, seed, got-wanted, refill)
			}
		}
	}
}

// TestANewLeaderMakesOneChangeBeyondTheBudget checks that it does not get the whole budget again.
func TestANewLeaderMakesOneChangeBeyondTheBudget(t *testing.T) {
	const terms = 30
	a, r, before := newAttack(1, 2000), begin(noon), 0
	for second := range 3600 {
		r.at = noon.Add(time.Duration(second) * time.Second)
		if second%(3600/terms) == 0 && second > 0 {
			changes := r.changes
			r = begin(r.at, r.keys...)
			r.changes = changes
			if before++; changes > before+changeBurst {
				t.Fatalf("%d changes by %d leaders within %d s", changes, before, second)
			}
		}
		r.choose(a.edit(), a.carried)
	}
	if r.changes > terms+changeBurst {
		t.Errorf("%d changes by %d leaders", r.changes, terms)
	}
	// It makes its one change at once: a key may have been pending for long.
	r = begin(r.at, r.keys...)
	changes := r.changes
	r.choose(used("example.com/rack"), carry("example.com/rack"))
	if r.changes != changes+1 && !r.has("example.com/rack") {
		t.Errorf("a new leader did not publish the key at once: %v", r.pendingKeys)
	}
}

// TestALeaderThatEndedWhileItWroteMayExceedTheQuota checks slices of which some have the old keys and some the new
// ones.
func TestALeaderThatEndedWhileItWroteMayExceedTheQuota(t *testing.T) {
	var published []string
	for i := range 100 {
		published = append(published, string(key("k", i)))
	}
	r := begin(noon, published...)
	r.choose(used(key("k", 99)), carry(key("k", 99)))
	if len(r.keys) != topologyslice.MaxKeys || !r.has(key("k", 99)) {
		t.Errorf("%d keys: %q", len(r.keys), r.keys)
	}
}

// TestTheOldestKeysHaveTheQuota checks that a later key waits until another has been out of use for a day, and that a
// key of the administrator does not.
func TestTheOldestKeysHaveTheQuota(t *testing.T) {
	wanted, carried := keyUsage{}, carry("example.com/rack", "example.com/row")
	for i := range maxUserKeys {
		wanted.add(key("early", i), false)
		carried[string(key("early", i))] = true
	}
	r := begin(noon)
	r.choose(wanted, carried)
	r.at = r.at.Add(time.Second)
	wanted.add("example.com/rack", false)
	if r.choose(wanted, carried); r.has("example.com/rack") || len(r.pendingKeys) != 1 || !r.pendingKeys[0].until.IsZero() {
		t.Errorf("the late key: pending %v", r.pendingKeys)
	}
	delete(wanted, key("early", 7))
	for range 24 {
		if r.choose(wanted, carried); r.has("example.com/rack") {
			t.Fatalf("at %s it replaced a key that was used less than a day ago", r.at)
		}
		r.at = r.at.Add(time.Hour)
	}
	r.at = r.at.Add(time.Second)
	if r.choose(wanted, carried); !r.has("example.com/rack") || len(r.pendingKeys) != 0 {
		t.Errorf("a slot is free, but %v are pending", r.pendingKeys)
	}
	wanted.add("example.com/row", true)
	if r.choose(wanted, carried); !r.has("example.com/row") || r.has("example.com/rack") || len(r.pendingKeys) != 1 {
		t.Errorf("the administrator's key is published: %t, the newest one: %t", r.has("example.com/row"), r.has("example.com/rack"))
	}
}

// TestWhichKeysWaitIsLoggedOnce also checks that there are few log lines, whatever users name.
func TestWhichKeysWaitIsLoggedOnce(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	a, r := newAttack(1, 2000), begin(noon)
	for second := range 3600 {
		r.at = noon.Add(time.Duration(second) * time.Second)
		r.choose(a.edit(), a.carried)
		r.ring.log(log, r.at, r.pendingKeys)
	}
	waitingLines := strings.Count(out.String(), "not published yet")
	if waitingLines == 0 || waitingLines > 5 || len(out.String()) > waitingLines*(namedKeys+2)*200 {
		t.Errorf("%d lines:\n%s", waitingLines, out.String())
	}
	r.ring.log(log, r.at, nil)
	out.Reset()
	for range 3 {
		r.at = r.at.Add(refill)
		r.ring.log(log, r.at, []pendingKey{{key: "example.com/rack", until: noon}})
	}
	r.ring.log(log, r.at, nil)
	r.ring.log(log, r.at, nil)
	const want = `"example.com/rack\" waits until 2026-11-23T12:00:00Z: the published keys changed too often`
	if strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), want) {
		t.Errorf("one pending key, then none: %s", out.String())
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
