package publish

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
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

// beyondAlways are the keys that are published because somebody uses them.
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

// noon is when the tests begin.
var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// key is a key of some Namespaces.
func key(name string, number int) policy.Key {
	return policy.Key(fmt.Sprintf("example.com/%s-%03d", name, number))
}

// carry has nodes carry keys.
func carry(keys ...policy.Key) map[string]bool {
	carried := map[string]bool{}
	for _, key := range keys {
		carried[string(key)] = true
	}
	return carried
}

// rounds has a keyring choose, one time after the other, and counts how often the keys change.
type rounds struct {
	ring    keyring
	at      time.Time
	keys    []string
	waits   []deferral
	changes int
}

// begin is a leader that finds some keys published.
func begin(at time.Time, published ...string) *rounds {
	r := &rounds{ring: newKeyring(at, published), at: at}
	r.keys = r.ring.keys()
	return r
}

func (r *rounds) choose(used usage, carried map[string]bool) {
	before := slices.Clone(r.keys)
	r.ring, r.waits = r.ring.choose(r.at, used, carried)
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
		used  usage
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
		if diff := cmp.Diff(step.want, beyondAlways(r.keys)); diff != "" || len(r.waits) != 0 {
			t.Errorf("at %s: keys (-want +got):\n%s%v wait", r.at, diff, r.waits)
		}
	}
}

func TestKeysThatNodesCarryTakeThePlacesFirst(t *testing.T) {
	wanted := used("example.com/z-carried")
	for i := range topologyslice.MaxKeys {
		wanted.add(key("nobody", i), "shop")
	}
	r := begin(noon)
	r.choose(wanted, carry("example.com/z-carried"))
	if len(r.keys) != topologyslice.MaxKeys || len(r.waits) != 1+len(always) {
		t.Errorf("%d keys, %d wait, want %d and %d", len(r.keys), len(r.waits), topologyslice.MaxKeys, 1+len(always))
	}
	if !r.has("example.com/z-carried") {
		t.Errorf("the key that nodes carry is left out of %q", r.keys)
	}
	if first := r.waits[0]; first.why != noPlaceIsFree || !first.until.IsZero() {
		t.Errorf("the first that waits: %+v", first)
	}
}

// TestTheFirstWhoComesKeepsAPlace: whatever keys others name that no node carries, and nothing piles up.
func TestTheFirstWhoComesKeepsAPlace(t *testing.T) {
	r, carried, full := begin(noon), carry("example.com/z-carried"), usage{}
	for i := range topologyslice.MaxKeys {
		full.add(key("m", i), "shop")
	}
	r.choose(full, carried)
	for i := range 1000 {
		r.at = r.at.Add(time.Second)
		r.choose(used(key("a", i)), carried)
	}
	if r.changes != 1 || len(r.waits) != 1 {
		t.Errorf("%d changes, %v wait", r.changes, r.waits)
	}
	if len(r.ring.published)+len(r.ring.waiting)+len(r.ring.lost)+len(r.ring.changesBy) > topologyslice.MaxKeys {
		t.Errorf("the keyring remembers %+v", r.ring)
	}
	r.choose(used("example.com/z-carried"), carried)
	if !r.has("example.com/z-carried") {
		t.Errorf("a key that nodes carry finds no place among %q", r.keys)
	}
}

// attack is one user with several Namespaces who names different keys every second, out of those that nodes carry.
type attack struct {
	random           *rand.Rand
	carried          map[string]bool
	namespaces, keys int
}

func newAttack(seed uint64, namespaces, keys int) attack {
	a := attack{rand.New(rand.NewPCG(seed, 0)), map[string]bool{}, namespaces, keys}
	for i := range keys {
		a.carried[string(key("k", i))] = true
	}
	return a
}

// edit names up to 80 keys, in one Namespace many and in another one few.
func (a attack) edit() usage {
	named := usage{}
	for range a.random.IntN(80) {
		namespace := a.random.IntN(1 + a.random.IntN(a.namespaces))
		named.add(key("k", a.random.IntN(a.keys)), fmt.Sprint("greedy-", namespace))
	}
	return named
}

// TestAnEditASecondForAnHour: changes of the published keys stay within the budget, however many Namespaces somebody has.
// A key of somebody else is published at once beside two Namespaces, and after twelve minutes whatever the others do.
func TestAnEditASecondForAnHour(t *testing.T) {
	for _, size := range [][2]int{{1, 80}, {2, 80}, {3, 80}, {20, 80}, {2, 2000}, {300, 2000}} {
		for seed := range uint64(2) {
			namespaces := size[0]
			a, r := newAttack(seed, namespaces, size[1]), begin(noon)
			carried := maps.Clone(a.carried)
			carried["example.com/rack"] = true
			wanted, got := 600*time.Second, time.Duration(0)
			for second := range 3600 {
				r.at = noon.Add(time.Duration(second) * time.Second)
				named := a.edit()
				if since := r.at.Sub(noon); since >= wanted {
					named.add("example.com/rack", "shop")
					if r.choose(named, carried); got == 0 && r.has("example.com/rack") {
						got = since
					}
					continue
				}
				r.choose(named, carried)
			}
			if r.changes > 10 || r.changes < 2 {
				t.Errorf("%d Namespaces, seed %d: %d changes in an hour, want at most 10", namespaces, seed, r.changes)
			}
			most := inAll.more
			if namespaces <= 2 {
				most = 0
			}
			if got == 0 || got-wanted > most || !r.has("example.com/rack") {
				t.Errorf("%d Namespaces, seed %d: the key of another one is published after %s, want at most %s",
					namespaces, seed, got-wanted, most)
			}
		}
	}
}

// TestANewLeaderMakesOneChangeBeyondTheBudget, and not all of them anew each time.
func TestANewLeaderMakesOneChangeBeyondTheBudget(t *testing.T) {
	const terms = 30
	a, r, before := newAttack(1, 20, 2000), begin(noon), 0
	for second := range 3600 {
		r.at = noon.Add(time.Duration(second) * time.Second)
		if second%(3600/terms) == 0 && second > 0 {
			changes := r.changes
			r = begin(r.at, r.keys...)
			r.changes = changes
			if before++; changes > before+inAll.atOnce {
				t.Fatalf("%d changes by %d leaders within %d s", changes, before, second)
			}
		}
		r.choose(a.edit(), a.carried)
	}
	if r.changes > terms+inAll.atOnce {
		t.Errorf("%d changes by %d leaders", r.changes, terms)
	}
	// It makes its one change at once: somebody may have waited for it.
	r = begin(r.at, r.keys...)
	changes := r.changes
	r.choose(used("example.com/rack"), carry("example.com/rack"))
	if r.changes != changes+1 && !r.has("example.com/rack") {
		t.Errorf("a key is not published at once by a new leader: %v", r.waits)
	}
}

// TestALeaderThatEndedWhileItWroteLeftTooManyKeys: both those before and those after.
func TestALeaderThatEndedWhileItWroteLeftTooManyKeys(t *testing.T) {
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

// TestNamespacesTakeTurns: each Namespace has its share of the keys that nodes carry, and a Namespace without a place
// comes first.
func TestNamespacesTakeTurns(t *testing.T) {
	wanted, carried := usage{}, carry("example.com/rack")
	add := func(namespace string, count int) {
		for i := range count {
			wanted.add(key(namespace, i), namespace)
			carried[string(key(namespace, i))] = true
		}
	}
	held := func(r *rounds, namespace string) (count int) {
		for i := range 200 {
			if r.has(key(namespace, i)) {
				count++
			}
		}
		return count
	}
	add("a-greedy", 200)
	add("b-modest", 3)
	add("c-greedy", 200)
	r := begin(noon)
	r.choose(wanted, carried)
	if a, b, c := held(r, "a-greedy"), held(r, "b-modest"), held(r, "c-greedy"); b != 3 || a+b+c != places || a-c > 1 || c-a > 1 {
		t.Errorf("of %d places the Namespaces have %d, %d and %d", places, a, b, c)
	}

	// Without a place, it comes first, whoever else waits.
	wanted.add("example.com/rack", "shop")
	wanted.add("example.com/rack", "blog")
	r.choose(wanted, carried)
	if !r.has("example.com/rack") || r.changes != 2 {
		t.Errorf("one key of other Namespaces: %d changes, %q", r.changes, beyondAlways(r.keys))
	}
	add("d-late", 200)
	r.at = r.at.Add(time.Minute)
	r.choose(wanted, carried)
	if a, c, d := held(r, "a-greedy"), held(r, "c-greedy"), held(r, "d-late"); d < places/3-1 || a < d || c < d || held(r, "b-modest") != 3 {
		t.Errorf("with another one, they have %d, %d and %d", a, c, d)
	}
}

// TestALostPlaceComesBackAfterADay: whoever names the key.
func TestALostPlaceComesBackAfterADay(t *testing.T) {
	wanted, carried := usage{}, carry("example.com/rack")
	for i := range places {
		wanted.add(key("greedy", i), "greedy")
		carried[string(key("greedy", i))] = true
	}
	r := begin(noon)
	r.choose(wanted, carried)
	wanted.add("example.com/rack", "shop")
	r.at = r.at.Add(time.Second)
	r.choose(wanted, carried)
	if len(r.waits) != 1 || !r.has("example.com/rack") {
		t.Fatalf("%v wait, want one key that lost its place", r.waits)
	}
	lost := r.waits[0]
	if lost.why != lostItsPlace || !lost.until.Equal(r.at.Add(keyLinger)) {
		t.Errorf("it says %+v", lost)
	}
	for range 10 { // by a Namespace without a place
		r.at = r.at.Add(keyLinger / 10)
		now := maps.Clone(wanted)
		now[lost.key] = map[string]bool{"other": true}
		if r.choose(now, carried); r.has(lost.key) {
			t.Fatalf("at %s it is back", r.at)
		}
	}
	r.at = r.at.Add(time.Second)
	now := maps.Clone(wanted)
	now[lost.key] = map[string]bool{"other": true}
	if r.choose(now, carried); !r.has(lost.key) {
		t.Errorf("after a day it is not back: %v", r.waits)
	}
}

// TestSeventyNamespacesWithOneKeyEach: what protects a key then is who was first, and the configuration. There must be so
// many keys that nodes carry.
func TestSeventyNamespacesWithOneKeyEach(t *testing.T) {
	wanted, carried := usage{}, carry("example.com/rack", "example.com/row")
	many := func(count int) {
		for i := range count {
			wanted.add(key("k", i), fmt.Sprint("greedy-", i))
			carried[string(key("k", i))] = true
		}
	}
	first := begin(noon)
	first.choose(used("example.com/rack"), carried)
	many(70)
	wanted.add("example.com/rack", "shop")
	for i := range 48 { // two days
		first.at = noon.Add(time.Duration(i) * time.Hour)
		if first.choose(wanted, carried); !first.has("example.com/rack") {
			t.Fatalf("at %s the key that was first has lost its place: %v", first.at, first.waits)
		}
	}

	late := begin(noon)
	delete(wanted, "example.com/rack")
	late.choose(wanted, carried)
	wanted.add("example.com/rack", "shop")
	wanted.add("example.com/row", byAdministrator)
	late.at = late.at.Add(time.Second)
	late.choose(wanted, carried)
	if !late.has("example.com/row") || late.has("example.com/rack") {
		t.Errorf("that of the configuration has a place: %t, and another late one: %t", late.has("example.com/row"), late.has("example.com/rack"))
	}
	why := late.waits[slices.IndexFunc(late.waits, func(d deferral) bool { return d.key == "example.com/rack" })].why
	if why != noPlaceIsFree {
		t.Errorf("the late one waits because %s", why)
	}

	// A key that no node carries never takes the place of one that nodes carry.
	bogus := begin(noon)
	bogus.choose(wanted, carry())
	bogus.at = bogus.at.Add(time.Second)
	if bogus.choose(wanted, carry("example.com/rack")); !bogus.has("example.com/rack") {
		t.Errorf("among keys that no node carries there is no place for one that nodes do: %v", bogus.waits)
	}
}

// TestWhoWaitsIsToldOnce: each key is in one line, and there are few lines, whatever users name.
func TestWhoWaitsIsToldOnce(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	a, r, told := newAttack(1, 20, 2000), begin(noon), told{}
	for second := range 3600 {
		r.at = noon.Add(time.Duration(second) * time.Second)
		r.choose(a.edit(), a.carried)
		told.tell(log, r.at, r.waits)
	}
	lines := strings.Count(out.String(), "\n")
	if lines == 0 || lines > 12 || len(out.String()) > lines*(toldKeys+1)*200 {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	told.tell(log, r.at, nil)
	out.Reset()
	for range 3 {
		r.at = r.at.Add(inAll.more)
		told.tell(log, r.at, []deferral{{key: "example.com/rack", why: manyChanges, until: noon}})
	}
	told.tell(log, r.at, nil)
	told.tell(log, r.at, nil)
	const want = `"example.com/rack\" waits until 2026-11-23T12:00:00Z: the published keys changed too often`
	if strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), want) {
		t.Errorf("of one that waits, and then none: %s", out.String())
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
