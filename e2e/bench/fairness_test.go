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
	noTenant := tenantLoad{name: "no tenant"}
	for _, tenant := range append([]tenantLoad{noTenant}, tenantLoads...) {
		b.Run(tenant.name, func(b *testing.B) {
			for b.Loop() {
				results.fair = append(results.fair, tenant.measureFairness(b))
			}
		})
	}
}

// latencyHandler is a decision handler that records when the decisions of Services are applied.
type latencyHandler struct {
	mu    gosync.Mutex
	since map[model.ObjectName]time.Time
	took  []time.Duration
}

func (*latencyHandler) Derive([]selection.Decision) any { return nil }
func (*latencyHandler) OnSynced(selection.SyncState)    {}

func (h *latencyHandler) OnApplied(service model.ObjectName, _ any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since, isPending := h.since[service]; isPending {
		h.took = append(h.took, time.Since(since))
		delete(h.since, service)
	}
}

func (h *latencyHandler) record(service model.ObjectName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, isWaiting := h.since[service]; !isWaiting {
		h.since[service] = time.Now()
	}
}

const fairnessDuration = 6 * time.Second

func (s tenantLoad) measureFairness(b *testing.B) fairRow {
	b.Helper()
	m := newMachine(b)
	handler := &latencyHandler{since: map[model.ObjectName]time.Time{}}
	p := m.proxyOf(sharedCluster.cluster(), handler)
	sync(b, p)
	ctx, cancel := context.WithTimeout(b.Context(), fairnessDuration)
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
	all.Go(func() { p.Run(ctx, changes, nil, failingObserver{b}) })
	all.Go(func() {
		for round := 0; s.objects != nil; round++ {
			change := s.objects(1)
			if round%3 == 1 {
				change = s.changed(1)
			}
			if round%3 == 2 {
				change = deletionOf(change)
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
			number := round % sharedCluster.services
			slice := sharedCluster.slice(number, 9+round/sharedCluster.services%2)
			handler.record(serviceName(number))
			if !send(model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}) {
				return
			}
		}
	})
	all.Wait()
	// Changes that are still queued at the end count with their current waiting time.
	for since := range maps.Values(handler.since) {
		handler.took = append(handler.took, time.Since(since))
	}
	slices.Sort(handler.took)
	row.changes = len(handler.took)
	row.p50, row.p99, row.max = percentile(handler.took, 50), percentile(handler.took, 99), percentile(handler.took, 100)
	return row
}

// failingObserver is an observer that fails the benchmark if a sync fails.
type failingObserver struct{ b *testing.B }

func (failingObserver) Queued(syncer.Changes, time.Time) {}

func (failingObserver) Synced(syncer.Report, time.Time, time.Time) {}

func (o failingObserver) Failed(err error, _ syncer.Report, _, _ time.Time, _ time.Duration) {
	o.b.Error(err)
}
