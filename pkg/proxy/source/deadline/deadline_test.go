package deadline

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The queue must agree with a plain map after any history.
func TestQueueMatchesMap(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var queue Queue[int]
		want, now := map[int]time.Time{}, time.Unix(0, 0)
		for range 500 {
			key := random.IntN(20)
			switch random.IntN(5) {
			case 0:
				queue.Cancel(key)
				delete(want, key)
			case 1:
				now = now.Add(time.Duration(random.IntN(5)) * time.Second)
				expired := queue.PopExpired(now)
				var wantExpired []int
				for key, at := range want {
					if !now.Before(at) {
						wantExpired = append(wantExpired, key)
					}
				}
				maps.DeleteFunc(want, func(_ int, at time.Time) bool { return !now.Before(at) })
				slices.Sort(expired)
				slices.Sort(wantExpired)
				if !slices.Equal(expired, wantExpired) {
					t.Fatalf("seed %d: expired %v, want %v", seed, expired, wantExpired)
				}
			default:
				at := now.Add(time.Duration(1+random.IntN(10)) * time.Second)
				queue.Schedule(key, at)
				if _, has := want[key]; !has {
					want[key] = at
				}
			}
			next, ok := queue.Earliest()
			if ok != (len(want) > 0) || queue.Len() != len(want) {
				t.Fatalf("seed %d: Earliest() reports %v, Len() = %d, want %d keys", seed, ok, queue.Len(), len(want))
			}
			for _, at := range want {
				if at.Before(next) {
					t.Fatalf("seed %d: Earliest() = %v, but a key has %v", seed, next, at)
				}
			}
		}
	}
}

// Keys that are scheduled and cancelled must not use memory, however often.
func TestCancelledKeysUseNoMemory(t *testing.T) {
	var queue Queue[string]
	for i := range 100_000 {
		queue.Schedule("one", time.Unix(int64(i), 0))
		queue.Cancel("one")
	}
	if len(queue.order) > 16 {
		t.Errorf("%d entries remain for one key", len(queue.order))
	}
}
