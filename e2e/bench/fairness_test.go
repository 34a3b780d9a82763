package bench_test

import (
	"context"
	"maps"
	"slices"
	gosync "sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// fairRow has the latencies of other Services' changes under the worst load of one tenant.
type fairRow struct {
	name             string
	changes, tenants int
	p50, p99, max    time.Duration
}

// BenchmarkFairness measures the latency of other Services' changes, from the object to the accepted commit, while one
// tenant writes, changes and deletes its worst objects as fast as the proxy accepts changes.
func BenchmarkFairness(b *testing.B) {
	nobody := steep{name: "no tenant"}
	for _, tenant := range append([]steep{nobody}, steeps...) {
		b.Run(tenant.name, func(b *testing.B) {
			for b.Loop() {
				results.fair = append(results.fair, tenant.beside(b))
			}
		})
	}
}

// followed is a decision handler that records when the decisions of Services are applied.
type followed struct {
	mu    gosync.Mutex
	since map[model.ObjectName]time.Time
	took  []time.Duration
}

func (*followed) Derive([]selection.Decision) any { return nil }
func (*followed) OnSynced(selection.SyncState)    {}

func (f *followed) OnApplied(service model.ObjectName, _ any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since, waits := f.since[service]; waits {
		f.took = append(f.took, time.Since(since))
		delete(f.since, service)
	}
}

func (f *followed) record(service model.ObjectName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, waits := f.since[service]; !waits {
		f.since[service] = time.Now()
	}
}

const fairnessLasts = 6 * time.Second

func (s steep) beside(b *testing.B) fairRow {
	b.Helper()
	m := newMachine(b)
	reader := &followed{since: map[model.ObjectName]time.Time{}}
	p := m.proxyOf(beside.cluster(), reader)
	sync(b, p)
	ctx, cancel := context.WithTimeout(b.Context(), fairnessLasts)
	defer cancel()
	changes := make(chan model.Change)
	send := func(change model.Change) bool {
		select {
		case changes <- change:
			return true
		case <-ctx.Done():
			return false
		}
	}
	row := fairRow{name: s.name}
	var all gosync.WaitGroup
	all.Go(func() { p.Run(ctx, changes, nil, unobserved{b}) })
	all.Go(func() {
		for round := 0; s.of != nil; round++ {
			change := s.of(1)
			if round%3 == 1 {
				change = s.after(1)
			}
			if round%3 == 2 {
				change = gone(change)
			}
			if !send(change) {
				return
			}
			row.tenants++
			time.Sleep(50 * time.Millisecond) // the write rate that an API server allows one client
		}
	})
	all.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for round := 0; ; round++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			number := round % beside.services
			slice := beside.slice(number, 9+round/beside.services%2)
			reader.record(serviceName(number))
			if !send(model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}) {
				return
			}
		}
	})
	all.Wait()
	// Changes that are still queued at the end count with their current waiting time.
	for since := range maps.Values(reader.since) {
		reader.took = append(reader.took, time.Since(since))
	}
	slices.Sort(reader.took)
	row.changes = len(reader.took)
	row.p50, row.p99, row.max = percentile(reader.took, 50), percentile(reader.took, 99), percentile(reader.took, 100)
	return row
}

// unobserved is an observer that fails the benchmark if a sync fails.
type unobserved struct{ b *testing.B }

func (unobserved) Queued(syncer.Changes, time.Time) {}

func (unobserved) Synced(syncer.Report, time.Time, time.Time) {}

func (u unobserved) Failed(err error, _ syncer.Report, _, _ time.Time, _ time.Duration) {
	u.b.Error(err)
}
