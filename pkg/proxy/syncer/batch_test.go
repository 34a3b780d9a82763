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
func queued(sequence uint64, namespace, name string, weight int) syncer.Waiting {
	return syncer.NewWaiting(model.ObjectName{Namespace: namespace, Name: name}, sequence, weight)
}

func TestPickBatch(t *testing.T) {
	const maxSmall, large = syncer.MaxBatchWeight, syncer.MaxBatchWeight + 1
	many := func(count int) (queue []syncer.Waiting, names []string) {
		for i := range count {
			name := fmt.Sprintf("s-%03d", i)
			queue, names = append(queue, queued(uint64(i), "many", name, maxSmall/100)), append(names, "many/"+name)
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
		"all, if they fit": {waiting: []syncer.Waiting{queued(2, "b", "x", 10), queued(1, "a", "y", 10)},
			want: []string{"a/y", "b/x"}},
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
			waiting: slices.Concat([]syncer.Waiting{queued(1, "heavy", "1", maxSmall/2), queued(2, "heavy", "2", maxSmall/2)}, []syncer.Waiting{
				queued(3, "light", "1", maxSmall/8), queued(4, "light", "2", maxSmall/8), queued(5, "light", "3", maxSmall/8),
				queued(6, "light", "4", maxSmall/8),
			}),
			want: []string{"heavy/1", "light/1", "light/2", "light/3", "light/4"},
		},
		"one that is as large as a sync, alone": {
			waiting: []syncer.Waiting{queued(1, "a", "first", maxSmall), queued(2, "b", "second", maxSmall)}, want: []string{"a/first"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			selected, remaining := syncer.PickBatch(slices.Clone(test.waiting), test.lastLarge, test.allowLarge)
			if diff := cmp.Diff(test.want, selected); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
			if len(selected)+len(remaining) != len(test.waiting) {
				t.Errorf("%d of the Services are selected and %d still wait, want %d together", len(selected), len(remaining), len(test.waiting))
			}
			for _, name := range remaining {
				if slices.Contains(selected, name) {
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
	lastLarge, sequence := map[string]uint64{}, uint64(0)
	add := func(namespace string, weight int) {
		sequence++
		waiting = append(waiting, queued(sequence, namespace, fmt.Sprint("s-", sequence), weight))
	}
	for range 50 {
		add("greedy", syncer.MaxBatchWeight*3)
	}
	add("modest", syncer.MaxBatchWeight*3)
	modest := fmt.Sprint("modest/s-", sequence)
	for round := range 3 {
		selected, remaining := syncer.PickBatch(waiting, lastLarge, true)
		if slices.Contains(selected, modest) {
			return
		}
		sequence++
		lastLarge["greedy"] = sequence
		waiting = slices.DeleteFunc(waiting, func(one syncer.Waiting) bool { return !slices.Contains(remaining, one.Name()) })
		add("greedy", syncer.MaxBatchWeight*3)
		if round == 2 {
			t.Errorf("%s was in none of three batches", modest)
		}
	}
}
