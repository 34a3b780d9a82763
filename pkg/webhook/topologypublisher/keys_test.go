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

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func usageOf(keys ...policy.Key) keyUsage {
	all := keyUsage{}
	for _, key := range keys {
		all.add(key, false)
	}
	return all
}

// userKeys returns the keys that are published because they are in use.
func userKeys(keys []string) string {
	var result []string
	for _, key := range keys {
		if !isBuiltin(key) {
			result = append(result, key)
		}
	}
	return strings.Join(result, " ")
}

func isBuiltin(key string) bool {
	for _, builtin := range builtinKeys {
		if string(builtin) == key {
			return true
		}
	}
	return false
}

// noon is when the tests start.
var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// key returns a key with a name and a number.
func key(name string, number int) policy.Key {
	return policy.Key(fmt.Sprintf("example.com/%s-%03d", name, number))
}

// labelKeys returns keys that nodes have.
func labelKeys(keys ...policy.Key) map[string]bool {
	result := map[string]bool{}
	for _, key := range keys {
		result[string(key)] = true
	}
	return result
}

// keyRounds calls choose of a key set at successive times, and counts how often the keys change.
type keyRounds struct {
	set         *keySet
	at          time.Time
	keys        []string
	pendingKeys []pendingKey
	changes     int
}

// newKeyRounds returns a leader that finds some keys published.
func newKeyRounds(at time.Time, published ...string) *keyRounds {
	r := &keyRounds{set: newKeySet(at, published), at: at}
	r.keys = r.set.keys()
	return r
}

func (r *keyRounds) choose(used keyUsage, nodeKeys map[string]bool) {
	previous := slices.Clone(r.keys)
	r.pendingKeys = r.set.choose(r.at, used, nodeKeys)
	if r.keys = r.set.keys(); !slices.Equal(previous, r.keys) {
		r.changes++
	}
}

func (r *keyRounds) has(key policy.Key) bool { return slices.Contains(r.keys, string(key)) }

func TestKeyRetention(t *testing.T) {
	const rack, row = "example.com/rack", "example.com/row"
	r := newKeyRounds(noon, row) // an earlier leader published it
	for _, step := range []struct {
		after time.Duration
		used  keyUsage
		want  string
	}{
		{0, nil, row},
		{time.Second, usageOf(rack, policy.Zone, policy.Hostname, policy.AnyNode), rack + " " + row},
		{time.Hour, nil, rack + " " + row},
		{23*time.Hour - 500*time.Millisecond, nil, rack},
		{time.Minute, usageOf(rack), rack},
		{24 * time.Hour, nil, rack},
		{time.Second, nil, ""},
	} {
		r.at = r.at.Add(step.after)
		r.choose(step.used, nil)
		if diff := cmp.Diff(step.want, userKeys(r.keys)); diff != "" || len(r.pendingKeys) != 0 {
			t.Errorf("at %s: keys (-want +got):\n%spending: %v", r.at, diff, r.pendingKeys)
		}
	}
}

func TestKeysOfNodesHavePriority(t *testing.T) {
	inUse := usageOf("example.com/z-carried")
	for i := range v1alpha1.MaxKeys {
		inUse.add(key("nobody", i), false)
	}
	r := newKeyRounds(noon)
	r.choose(inUse, labelKeys("example.com/z-carried"))
	if len(r.keys) != v1alpha1.MaxKeys || len(r.pendingKeys) != 1+len(builtinKeys) {
		t.Errorf("%d keys, %d pending, want %d and %d", len(r.keys), len(r.pendingKeys), v1alpha1.MaxKeys, 1+len(builtinKeys))
	}
	if !r.has("example.com/z-carried") {
		t.Errorf("the key of a node is missing in %q", r.keys)
	}
	if first := r.pendingKeys[0]; !first.until.IsZero() {
		t.Errorf("first pending key: %+v", first)
	}
}

// TestOldestKeysStayPublished checks that newer keys that no node has do not replace older ones, and that no state
// accumulates.
func TestOldestKeysStayPublished(t *testing.T) {
	r, nodeKeys, full := newKeyRounds(noon), labelKeys("example.com/z-carried"), keyUsage{}
	for i := range v1alpha1.MaxKeys {
		full.add(key("m", i), false)
	}
	r.choose(full, nodeKeys)
	for i := range 1000 {
		r.at = r.at.Add(time.Second)
		r.choose(usageOf(key("a", i)), nodeKeys)
	}
	if r.changes != 1 || len(r.pendingKeys) != 1 {
		t.Errorf("%d changes, pending %v", r.changes, r.pendingKeys)
	}
	if len(r.set.states) > v1alpha1.MaxKeys {
		t.Errorf("too many key states: %+v", r.set)
	}
	r.choose(usageOf("example.com/z-carried"), nodeKeys)
	if !r.has("example.com/z-carried") {
		t.Errorf("the key of a node is missing in %q", r.keys)
	}
}

// hostileUser is a user who names different keys every second, all of them keys that nodes have.
type hostileUser struct {
	random   *rand.Rand
	nodeKeys map[string]bool
	keys     int
}

func newHostileUser(seed uint64, keys int) hostileUser {
	u := hostileUser{rand.New(rand.NewPCG(seed, 0)), map[string]bool{}, keys}
	for i := range keys {
		u.nodeKeys[string(key("k", i))] = true
	}
	return u
}

// randomKeys returns up to 80 keys.
func (u hostileUser) randomKeys() keyUsage {
	usage := keyUsage{}
	for range u.random.IntN(80) {
		usage.add(key("k", u.random.IntN(u.keys)), false)
	}
	return usage
}

// TestKeyChangesStayWithinBudget checks that changes of the published keys stay within the budget, and that a key of
// the administrator waits only for the budget.
func TestKeyChangesStayWithinBudget(t *testing.T) {
	for _, keys := range []int{80, 2000} {
		for seed := range uint64(2) {
			a, r := newHostileUser(seed, keys), newKeyRounds(noon)
			requestedAfter, publishedAfter := 600*time.Second, time.Duration(0)
			for second := range 3600 {
				r.at = noon.Add(time.Duration(second) * time.Second)
				usage := a.randomKeys()
				since := r.at.Sub(noon)
				if since >= requestedAfter {
					usage.add("example.com/rack", true)
				}
				if r.choose(usage, a.nodeKeys); publishedAfter == 0 && r.has("example.com/rack") {
					publishedAfter = since
				}
			}
			if r.changes > 10 || r.changes < 2 {
				t.Errorf("%d keys, seed %d: %d changes in an hour, want 2 to 10", keys, seed, r.changes)
			}
			if publishedAfter == 0 || publishedAfter-requestedAfter > refillInterval || !r.has("example.com/rack") {
				t.Errorf("%d keys, seed %d: the administrator's key is published after %s, want at most %s", keys, seed,
					publishedAfter-requestedAfter, refillInterval)
			}
		}
	}
}

// TestNewLeaderGetsOneToken checks that a new leader does not get the whole budget again.
func TestNewLeaderGetsOneToken(t *testing.T) {
	const terms = 30
	a, r, leaders := newHostileUser(1, 2000), newKeyRounds(noon), 0
	for second := range 3600 {
		r.at = noon.Add(time.Duration(second) * time.Second)
		if second%(3600/terms) == 0 && second > 0 {
			changes := r.changes
			r = newKeyRounds(r.at, r.keys...)
			r.changes = changes
			if leaders++; changes > leaders+changeBurst {
				t.Fatalf("%d changes by %d leaders within %d s", changes, leaders, second)
			}
		}
		r.choose(a.randomKeys(), a.nodeKeys)
	}
	if r.changes > terms+changeBurst {
		t.Errorf("%d changes by %d leaders", r.changes, terms)
	}
	// It makes its one change at once: a key may have been pending for long.
	r = newKeyRounds(r.at, r.keys...)
	changes := r.changes
	r.choose(usageOf("example.com/rack"), labelKeys("example.com/rack"))
	if r.changes != changes+1 && !r.has("example.com/rack") {
		t.Errorf("a new leader did not publish the key at once: %v", r.pendingKeys)
	}
}

// TestPublishedKeysAboveQuotaAreReduced checks slices of which some have the old keys and some the new
// ones.
func TestPublishedKeysAboveQuotaAreReduced(t *testing.T) {
	var published []string
	for i := range 100 {
		published = append(published, string(key("k", i)))
	}
	r := newKeyRounds(noon, published...)
	r.choose(usageOf(key("k", 99)), labelKeys(key("k", 99)))
	if len(r.keys) != v1alpha1.MaxKeys || !r.has(key("k", 99)) {
		t.Errorf("%d keys: %q", len(r.keys), r.keys)
	}
}

// TestNewKeyWaitsForQuota checks that a later key waits until another has been out of use for a day, and that a
// key of the administrator does not.
func TestNewKeyWaitsForQuota(t *testing.T) {
	inUse, nodeKeys := keyUsage{}, labelKeys("example.com/rack", "example.com/row")
	for i := range maxUserKeys {
		inUse.add(key("early", i), false)
		nodeKeys[string(key("early", i))] = true
	}
	r := newKeyRounds(noon)
	r.choose(inUse, nodeKeys)
	r.at = r.at.Add(time.Second)
	inUse.add("example.com/rack", false)
	if r.choose(inUse, nodeKeys); r.has("example.com/rack") || len(r.pendingKeys) != 1 || !r.pendingKeys[0].until.IsZero() {
		t.Errorf("the late key: pending %v", r.pendingKeys)
	}
	delete(inUse, key("early", 7))
	for range 24 {
		if r.choose(inUse, nodeKeys); r.has("example.com/rack") {
			t.Fatalf("at %s it replaced a key that was used less than a day ago", r.at)
		}
		r.at = r.at.Add(time.Hour)
	}
	r.at = r.at.Add(time.Second)
	if r.choose(inUse, nodeKeys); !r.has("example.com/rack") || len(r.pendingKeys) != 0 {
		t.Errorf("a slot is free, but %v are pending", r.pendingKeys)
	}
	inUse.add("example.com/row", true)
	if r.choose(inUse, nodeKeys); !r.has("example.com/row") || r.has("example.com/rack") || len(r.pendingKeys) != 1 {
		t.Errorf("the administrator's key is published: %t, the newest one: %t", r.has("example.com/row"), r.has("example.com/rack"))
	}
}

// TestPendingKeysAreLoggedOnce also checks that there are few log lines, whatever users name.
func TestPendingKeysAreLoggedOnce(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	a, r := newHostileUser(1, 2000), newKeyRounds(noon)
	for second := range 3600 {
		r.at = noon.Add(time.Duration(second) * time.Second)
		r.choose(a.randomKeys(), a.nodeKeys)
		r.set.log(log, r.at, r.pendingKeys)
	}
	waitingLines := strings.Count(out.String(), "not published yet")
	if waitingLines == 0 || waitingLines > 5 || len(out.String()) > waitingLines*(maxLoggedKeys+2)*200 {
		t.Errorf("%d lines:\n%s", waitingLines, out.String())
	}
	r.set.log(log, r.at, nil)
	out.Reset()
	for range 3 {
		r.at = r.at.Add(refillInterval)
		r.set.log(log, r.at, []pendingKey{{key: "example.com/rack", until: noon}})
	}
	r.set.log(log, r.at, nil)
	r.set.log(log, r.at, nil)
	const want = `"example.com/rack\" waits until 2026-11-23T12:00:00Z: the published keys changed too often`
	if strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), want) {
		t.Errorf("one pending key, then none; want two lines, got: %s", out.String())
	}
}

func TestPublishedLabels(t *testing.T) {
	labels := map[string]string{"zone": "a", "rack": "r1", "secret": "x"}
	if diff := cmp.Diff(map[string]string{"zone": "a", "rack": "r1"}, publishedLabels(labels, []string{"rack", "row", "zone"})); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got := publishedLabels(labels, []string{"row"}); got != nil {
		t.Errorf("labels %v, want none", got)
	}
}
