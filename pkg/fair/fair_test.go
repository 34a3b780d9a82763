package fair_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

// thing is an item of a Namespace with a weight.
type thing struct {
	name string
	fair.Share
}

func of(t thing) fair.Share { return t.Share }

// things parses "a1=3 b1=2": the Namespace is the letter.
func things(text string) []thing {
	var all []thing
	for word := range strings.FieldsSeq(text) {
		name, _, _ := strings.Cut(word, "=")
		one := thing{name: name, Share: fair.Share{Namespace: name[:1]}}
		_, _ = fmt.Sscanf(word, name+"=%d", &one.Weight)
		all = append(all, one)
	}
	return all
}

func names(all []thing) string {
	var words []string
	for _, one := range all {
		words = append(words, one.name)
	}
	return strings.Join(words, " ")
}

func TestOrder(t *testing.T) {
	for _, test := range []struct{ items, want string }{
		{"", ""},
		{"a1=1 a2=1 a3=1 b1=1", "a1 b1 a2 a3"},
		{"a1=8000 b1=1 c1=100 c2=100", "b1 c1 c2 a1"},
		{"a1=1 a2=8000 b1=100", "a1 b1 a2"},
		{"b1=2 a1=1 a2=1", "a1 b1 a2"},
	} {
		if got := names(fair.Order(things(test.items), of)); got != test.want {
			t.Errorf("%s: %s, want %s", test.items, got, test.want)
		}
	}
}

// TestOrderGivesEachNamespaceItsPart checks random inputs: each Namespace gets at least an n-th of the capacity minus
// its largest item, or all that it wants.
func TestOrderGivesEachNamespaceItsPart(t *testing.T) {
	const room = 1000
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var all []thing
		wanted, largest := map[string]int{}, map[string]int{}
		for range 1 + random.IntN(60) {
			one := thing{Share: fair.Share{Namespace: string(rune('a' + random.IntN(6))), Weight: 1 + random.IntN(1<<random.IntN(11))}}
			all = append(all, one)
			wanted[one.Namespace] += one.Weight
			largest[one.Namespace] = max(largest[one.Namespace], one.Weight)
		}
		slices.SortStableFunc(all, func(a, b thing) int { return a.Weight - b.Weight })
		got, left := map[string]int{}, room
		for _, one := range fair.Order(all, of) {
			if one.Weight <= left {
				left -= one.Weight
				got[one.Namespace] += one.Weight
			}
		}
		for namespace, wants := range wanted {
			if part := min(wants, room/len(wanted)-largest[namespace]); got[namespace] < part {
				t.Errorf("%s got %d of the %d that it wants, want at least %d: %v", namespace, got[namespace], wants, part, wanted)
			}
		}
	}
}

// TestScheduleServesAllEqually checks three Namespaces that always have queued work, with items of different weights.
// One that is added later is served equally from then on.
func TestScheduleServesAllEqually(t *testing.T) {
	var queue fair.Queue
	got := map[string]int{}
	serve := func(times int, waits []thing) {
		for range times {
			next := fair.Schedule(&queue, waits, of)[0]
			queue.OnServed(next.Share)
			got[next.Namespace] += next.Weight
		}
	}
	serve(4000, things("a1=1 a2=1 b1=100 c1=10"))
	for namespace, weight := range got {
		if most := max(got["a"], got["b"], got["c"]); weight < most-100 {
			t.Errorf("%s got %d, another one %d", namespace, weight, most)
		}
	}
	clear(got)
	serve(4000, things("a1=1 d1=10"))
	if difference := got["a"] - got["d"]; difference < -100 || difference > 100 {
		t.Errorf("a got %d, d (added later) %d", got["a"], got["d"])
	}
}

func TestScheduleKeepsTheOrderOfOneNamespaceAndOfEquals(t *testing.T) {
	var queue fair.Queue
	if got := names(fair.Schedule(&queue, things("b1=5 a1=1 a2=1 a3=9 b2=1"), of)); got != "b1 a1 a2 a3 b2" {
		t.Errorf("first: %s", got)
	}
	queue.OnServed(fair.Share{Namespace: "b", Weight: 5})
	if got := names(fair.Schedule(&queue, things("a1=1 a2=1 a3=9 b2=1"), of)); got != "a1 a2 a3 b2" {
		t.Errorf("after b was served: %s", got)
	}
	if got := fair.Schedule(&queue, nil, of); len(got) > 0 {
		t.Errorf("no items, got %v", got)
	}
}

// TestQuotasEndUpEqual checks random orders of arrival, and that no more slots are released than needed.
func TestQuotasEndUpEqual(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		const number, namespaces = 50, 5
		quota, given := fair.NewQuota(number), 0
		held := map[string]int{}
		for range 5000 {
			namespace := string(rune('a' + min(random.IntN(namespaces), random.IntN(namespaces))))
			if !quota.Acquire(namespace) && quota.ShouldRelease(namespace) {
				for other, count := range held {
					if count == quota.MaxUsed() {
						quota.Release(other)
						held[other]--
						given++
						break
					}
				}
				if !quota.Acquire(namespace) {
					t.Fatal("no free slot after a release")
				}
				held[namespace]++
			} else if quota.Used(namespace) > held[namespace] {
				held[namespace]++
			}
		}
		for namespace, count := range held {
			if count != number/namespaces || quota.Used(namespace) != count || quota.Free() != 0 {
				t.Errorf("%s has %d of %d slots: %v", namespace, count, number, held)
			}
		}
		if given > number {
			t.Errorf("%d slots were released, of %d", given, number)
		}
	}
}

func BenchmarkOrder(b *testing.B) {
	all := make([]thing, 100_000)
	for i := range all {
		all[i].Share = fair.Share{Namespace: fmt.Sprint(i % 1000), Weight: i % 97}
	}
	for b.Loop() {
		fair.Order(all, of)
	}
}
