package deadline

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The queue must agree with a plain map after any history.
func TestWhatIsDueIsWhatWasNotTakenBack(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var queue Queue[int]
		want, now := map[int]time.Time{}, time.Unix(0, 0)
		for range 500 {
			thing := random.IntN(20)
			switch random.IntN(5) {
			case 0:
				queue.Cancel(thing)
				delete(want, thing)
			case 1:
				now = now.Add(time.Duration(random.IntN(5)) * time.Second)
				due := queue.PopExpired(now)
				var wanted []int
				for thing, at := range want {
					if !now.Before(at) {
						wanted = append(wanted, thing)
					}
				}
				maps.DeleteFunc(want, func(_ int, at time.Time) bool { return !now.Before(at) })
				slices.Sort(due)
				slices.Sort(wanted)
				if !slices.Equal(due, wanted) {
					t.Fatalf("seed %d: expired %v, want %v", seed, due, wanted)
				}
			default:
				at := now.Add(time.Duration(1+random.IntN(10)) * time.Second)
				queue.Schedule(thing, at)
				if _, has := want[thing]; !has {
					want[thing] = at
				}
			}
			next, some := queue.Earliest()
			if some != (len(want) > 0) || queue.Len() != len(want) {
				t.Fatalf("seed %d: Earliest() reports %v, Len() = %d, want %d keys", seed, some, queue.Len(), len(want))
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
func TestWhoComesAndGoesTakesNoMemory(t *testing.T) {
	var queue Queue[string]
	for i := range 100_000 {
		queue.Schedule("one", time.Unix(int64(i), 0))
		queue.Cancel("one")
	}
	if len(queue.order) > 16 {
		t.Errorf("%d entries remain for one key", len(queue.order))
	}
}
