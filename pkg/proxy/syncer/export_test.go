package syncer

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// SyncInterval is for tests that count syncs.
const SyncInterval = syncInterval

// MaxBatchWeight is for tests that count elements.
const MaxBatchWeight = maxBatchWeight

// Waiting is a Service that waits for a batch.
type Waiting = queuedService

// NewWaiting returns a waiting Service.
func NewWaiting(name model.ObjectName, sequence uint64, weight int) Waiting {
	return queuedService{name, sequence, weight}
}

// Name returns namespace/name.
func (w Waiting) Name() string { return w.name.String() }

// PickBatch returns the names of the Services of the next batch, and of those that still wait.
func PickBatch(all []Waiting, lastLarge map[string]uint64, allowLarge bool) (selected, remaining []string) {
	next := pickBatch(all, lastLarge, allowLarge)
	for _, name := range next.selected {
		selected = append(selected, name.String())
	}
	for _, queued := range next.remaining {
		remaining = append(remaining, queued.Name())
	}
	return selected, remaining
}

// Waits reports whether a Service or a cleanup waits for the next sync.
func (p *Proxy) Waits() bool {
	_, waits := p.untilNextBatch(time.Now())
	return waits
}

// AllowLarge allows a large Service in the next sync.
func (p *Proxy) AllowLarge() { p.largeAfter = time.Time{} }

// ForbidLarge makes large Services wait for an hour.
func (p *Proxy) ForbidLarge() { p.largeAfter = time.Now().Add(time.Hour) }

// AllowReplanning allows replanning in the next sync, however recent the last time was.
func (p *Proxy) AllowReplanning() { p.replanAfter = time.Time{} }

// ReplanInterval is for tests that count syncs.
const ReplanInterval = replanInterval
