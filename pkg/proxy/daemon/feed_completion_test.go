package daemon

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestTheFirstChangeWaitsForEveryOrigin, however many there are and whichever reports last.
func TestTheFirstChangeWaitsForEveryOrigin(t *testing.T) {
	for number := origin(1); number <= origins+2; number++ {
		for last := range number {
			complete := newCompletion(number, nil)
			for from := range number {
				if from == last {
					continue
				}
				for range 2 { // an origin that reports twice counts once
					if _, isComplete := complete.add(from, model.Change{}); isComplete {
						t.Fatalf("of %d origins: complete before %d has reported", number, last)
					}
				}
			}
			if _, isComplete := complete.add(last, model.Change{}); !isComplete {
				t.Fatalf("of %d origins: not complete when all have reported, %d as the last", number, last)
			}
			if _, isNew := complete.add(0, model.Change{}); isNew {
				t.Errorf("of %d origins: an empty change is handed over after the first", number)
			}
		}
	}
}
