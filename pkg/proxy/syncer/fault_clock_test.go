package syncer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// timesObserver is an Observer that forwards the times of its calls.
type timesObserver struct{ queued, failed, synced chan []time.Time }

func (o timesObserver) Queued(_ syncer.Changes, at time.Time) { o.queued <- []time.Time{at} }

func (o timesObserver) Synced(_ syncer.Report, started, ended time.Time) {
	o.synced <- []time.Time{started, ended}
}

func (o timesObserver) Failed(_ error, _ syncer.Report, started, ended time.Time, _ time.Duration) {
	o.failed <- []time.Time{started, ended}
}

// TestObserversGetMonotonicTimes: every time that an observer gets has a reading of the monotonic clock, from
// which the differences in status and metrics are computed. The pauses between attempts follow that clock anyway.
// A real jump is not possible here: the date is the whole machine's, and time namespaces do not change it.
func TestObserversGetMonotonicTimes(t *testing.T) {
	failures := 0
	kernel := &scriptedKernel{reject: func(ruleset.Batch) error {
		if failures++; failures == 1 {
			return errInjected
		}
		return nil
	}}
	observer := timesObserver{make(chan []time.Time, 2), make(chan []time.Time, 1), make(chan []time.Time, 1)}
	changes := make(chan model.Change, 1)
	changes <- manyServices(3, 2)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go newProxy(kernel).Run(ctx, changes, nil, observer)
	moments := append(append(<-observer.queued, <-observer.failed...), append(<-observer.queued, <-observer.synced...)...)
	for i, at := range moments {
		if !strings.Contains(at.String(), " m=") { // nothing else shows it
			t.Errorf("moment %d of %d, %s, has no reading of the monotonic clock", i+1, len(moments), at)
		}
		if i > 0 && at.Before(moments[i-1]) {
			t.Errorf("moment %d of %d, %s, is before %s", i+1, len(moments), at, moments[i-1])
		}
	}
}
