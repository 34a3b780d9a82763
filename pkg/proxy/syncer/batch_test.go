package syncer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// queued returns a waiting Service NAMESPACE/NAME with some weight.
func queued(since uint64, namespace, name string, weight int) syncer.Waiting {
	return syncer.NewWaiting(model.ObjectName{Namespace: namespace, Name: name}, since, weight)
}

func TestPickBatch(t *testing.T) {
	const all, large = syncer.MaxBatchWeight, syncer.MaxBatchWeight + 1
	many := func(count int) (queue []syncer.Waiting, names []string) {
		for i := range count {
			name := fmt.Sprintf("s-%03d", i)
			queue, names = append(queue, queued(uint64(i), "many", name, all/100)), append(names, "many/"+name)
		}
		return queue, names
	}
	queue, names := many(150)
	for title, test := range map[string]struct {
		waiting    []syncer.Waiting
		lastLarge  map[string]uint64
		allowLarge bool
		want       []string
	}{
		"all, if they fit":                           {waiting: []syncer.Waiting{queued(2, "b", "x", 10), queued(1, "a", "y", 10)}, want: []string{"a/y", "b/x"}},
		"no Service waits":                           {},
		"as many as fit into one sync, oldest first": {waiting: queue, want: names[:101]},
		"the newest, if its namespace has no other": {
			waiting: append(slices.Clone(queue), queued(1000, "other", "one", 12)), want: append(slices.Clone(names[:100]), "other/one"),
		},
		"a large one together with small ones": {
			waiting:    []syncer.Waiting{queued(1, "a", "huge", large), queued(2, "a", "small", 1)},
			allowLarge: true, want: []string{"a/huge", "a/small"},
		},
		"no large one unless allowed": {
			waiting: []syncer.Waiting{queued(1, "a", "huge", large), queued(2, "a", "small", 1)}, want: []string{"a/small"},
		},
		"one of two large ones": {
			waiting: []syncer.Waiting{queued(2, "a", "second", large), queued(1, "a", "first", large)}, allowLarge: true, want: []string{"a/first"},
		},
		"the large one of the namespace that was synced longest ago": {
			waiting:   []syncer.Waiting{queued(1, "a", "first", large), queued(2, "b", "second", large)},
			lastLarge: map[string]uint64{"a": 7, "b": 3}, allowLarge: true, want: []string{"b/second"},
		},
		"one heavy Service of a namespace, and light ones of the same weight of another": {
			waiting: slices.Concat([]syncer.Waiting{queued(1, "heavy", "1", all/2), queued(2, "heavy", "2", all/2)}, []syncer.Waiting{
				queued(3, "light", "1", all/8), queued(4, "light", "2", all/8), queued(5, "light", "3", all/8), queued(6, "light", "4", all/8),
			}),
			want: []string{"heavy/1", "light/1", "light/2", "light/3", "light/4"},
		},
		"one that is as large as a sync, alone": {
			waiting: []syncer.Waiting{queued(1, "a", "first", all), queued(2, "b", "second", all)}, want: []string{"a/first"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			taken, rest := syncer.PickBatch(slices.Clone(test.waiting), test.lastLarge, test.allowLarge)
			if diff := cmp.Diff(test.want, taken); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
			if len(taken)+len(rest) != len(test.waiting) {
				t.Errorf("%d of the Services are selected and %d still wait, want %d together", len(taken), len(rest), len(test.waiting))
			}
			for _, name := range rest {
				if slices.Contains(taken, name) {
					t.Errorf("%s is selected and still waits", name)
				}
			}
		})
	}
}

// TestEveryServiceIsPicked: whatever arrives in between, every namespace that waits is served after at most one batch
// of each other namespace.
func TestEveryServiceIsPicked(t *testing.T) {
	var waiting []syncer.Waiting
	lastLarge, since := map[string]uint64{}, uint64(0)
	add := func(namespace string, weight int) {
		since++
		waiting = append(waiting, queued(since, namespace, fmt.Sprint("s-", since), weight))
	}
	for range 50 {
		add("greedy", syncer.MaxBatchWeight*3)
	}
	add("modest", syncer.MaxBatchWeight*3)
	victim := fmt.Sprint("modest/s-", since)
	for round := range 3 {
		taken, rest := syncer.PickBatch(waiting, lastLarge, true)
		if slices.Contains(taken, victim) {
			return
		}
		since++
		lastLarge["greedy"] = since
		waiting = slices.DeleteFunc(waiting, func(one syncer.Waiting) bool { return !slices.Contains(rest, one.Name()) })
		add("greedy", syncer.MaxBatchWeight*3)
		if round == 2 {
			t.Errorf("%s was in none of three batches", victim)
		}
	}
}
