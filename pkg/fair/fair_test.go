package fair_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

// item is an item of a Namespace with a weight.
type item struct {
	name string
	fair.Share
}

func shareOf(t item) fair.Share { return t.Share }

// parseItems parses "a1=3 b1=2": the Namespace is the letter.
func parseItems(text string) []item {
	var all []item
	for entry := range strings.FieldsSeq(text) {
		name, _, _ := strings.Cut(entry, "=")
		it := item{name: name, Share: fair.Share{Namespace: name[:1]}}
		_, _ = fmt.Sscanf(entry, name+"=%d", &it.Weight)
		all = append(all, it)
	}
	return all
}

func names(all []item) string {
	var result []string
	for _, it := range all {
		result = append(result, it.name)
	}
	return strings.Join(result, " ")
}

func TestOrder(t *testing.T) {
	for _, test := range []struct{ items, want string }{
		{"", ""},
		{"a1=1 a2=1 a3=1 b1=1", "a1 b1 a2 a3"},
		{"a1=8000 b1=1 c1=100 c2=100", "b1 c1 c2 a1"},
		{"a1=1 a2=8000 b1=100", "a1 b1 a2"},
		{"b1=2 a1=1 a2=1", "a1 b1 a2"},
	} {
		if got := names(fair.Order(parseItems(test.items), shareOf)); got != test.want {
			t.Errorf("%s: %s, want %s", test.items, got, test.want)
		}
	}
}

// TestOrderIsMaxMinFair checks random inputs: each Namespace gets at least an n-th of the capacity minus
// its largest item, or all that it wants.
func TestOrderIsMaxMinFair(t *testing.T) {
	const capacity = 1000
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var all []item
		demand, largest := map[string]int{}, map[string]int{}
		for range 1 + random.IntN(60) {
			it := item{Share: fair.Share{Namespace: string(rune('a' + random.IntN(6))), Weight: 1 + random.IntN(1<<random.IntN(11))}}
			all = append(all, it)
			demand[it.Namespace] += it.Weight
			largest[it.Namespace] = max(largest[it.Namespace], it.Weight)
		}
		slices.SortStableFunc(all, func(a, b item) int { return a.Weight - b.Weight })
		got, free := map[string]int{}, capacity
		for _, it := range fair.Order(all, shareOf) {
			if it.Weight <= free {
				free -= it.Weight
				got[it.Namespace] += it.Weight
			}
		}
		for namespace, want := range demand {
			if guaranteed := min(want, capacity/len(demand)-largest[namespace]); got[namespace] < guaranteed {
				t.Errorf("%s got %d of the %d that it wants, want at least %d: %v", namespace, got[namespace], want, guaranteed, demand)
			}
		}
	}
}

// TestScheduleIsFair checks three Namespaces that always have queued work, with items of different weights.
// One that is added later is served equally from then on.
func TestScheduleIsFair(t *testing.T) {
	var queue fair.Queue
	got := map[string]int{}
	serve := func(times int, queued []item) {
		for range times {
			next := fair.Schedule(&queue, queued, shareOf)[0]
			queue.OnServed(next.Share)
			got[next.Namespace] += next.Weight
		}
	}
	serve(4000, parseItems("a1=1 a2=1 b1=100 c1=10"))
	for namespace, weight := range got {
		if largest := max(got["a"], got["b"], got["c"]); weight < largest-100 {
			t.Errorf("%s got %d, another one %d", namespace, weight, largest)
		}
	}
	clear(got)
	serve(4000, parseItems("a1=1 d1=10"))
	if difference := got["a"] - got["d"]; difference < -100 || difference > 100 {
		t.Errorf("a got %d, d (added later) %d", got["a"], got["d"])
	}
}

func TestScheduleIsStable(t *testing.T) {
	var queue fair.Queue
	if got := names(fair.Schedule(&queue, parseItems("b1=5 a1=1 a2=1 a3=9 b2=1"), shareOf)); got != "b1 a1 a2 a3 b2" {
		t.Errorf("first: %s", got)
	}
	queue.OnServed(fair.Share{Namespace: "b", Weight: 5})
	if got := names(fair.Schedule(&queue, parseItems("a1=1 a2=1 a3=9 b2=1"), shareOf)); got != "a1 a2 a3 b2" {
		t.Errorf("after b was served: %s", got)
	}
	if got := fair.Schedule(&queue, nil, shareOf); len(got) > 0 {
		t.Errorf("no items, got %v", got)
	}
}

// TestQuotaConverges checks random orders of arrival, and that no more slots are released than needed.
func TestQuotaConverges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		const slots, namespaces = 50, 5
		quota, released := fair.NewQuota(slots), 0
		used := map[string]int{}
		for range 5000 {
			namespace := string(rune('a' + min(random.IntN(namespaces), random.IntN(namespaces))))
			if !quota.Acquire(namespace) && quota.ShouldRelease(namespace) {
				for other, count := range used {
					if count == quota.MaxUsed() {
						quota.Release(other)
						used[other]--
						released++
						break
					}
				}
				if !quota.Acquire(namespace) {
					t.Fatal("no free slot after a release")
				}
				used[namespace]++
			} else if quota.Used(namespace) > used[namespace] {
				used[namespace]++
			}
		}
		for namespace, count := range used {
			if count != slots/namespaces || quota.Used(namespace) != count || quota.Free() != 0 {
				t.Errorf("%s has %d of %d slots: %v", namespace, count, slots, used)
			}
		}
		if released > slots {
			t.Errorf("%d slots were released, of %d", released, slots)
		}
	}
}

func BenchmarkOrder(b *testing.B) {
	all := make([]item, 100_000)
	for i := range all {
		all[i].Share = fair.Share{Namespace: fmt.Sprint(i % 1000), Weight: i % 97}
	}
	for b.Loop() {
		fair.Order(all, shareOf)
	}
}
