package daemons_test

import (
	"context"
	"testing"
	"time"
)

// pauseBetween is the pause between two measured changes. kube-proxy's default pause between two syncs is a second, and
// it syncs a later change at once.
const pauseBetween = 1200 * time.Millisecond

// timeNewPath pauses, replaces the endpoint of the dialled Service, and returns the time from the write, including the
// request to the API server, to the first packet that reaches the new endpoint.
func (s *setup) timeNewPath(b *testing.B, d *daemon, pause time.Duration) time.Duration {
	b.Helper()
	defer func() { s.old, s.new = s.new, s.old }()
	time.Sleep(pause)
	written := make(chan error, 1)
	started := time.Now()
	go func() { written <- s.update(b.Context(), "probe", s.new.IPv4) }()
	responded := d.waitFor(b, s, s.new)
	if err := <-written; err != nil {
		b.Fatal(err)
	}
	return responded.Sub(started)
}

// runUnderLoad changes endpoints at a steady rate while it runs the given function, and returns the actual rate, which the API
// server may limit.
func (s *setup) runUnderLoad(b *testing.B, work func()) (rate float64) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	ended := make(chan error, 1)
	before, began := s.changes.Load(), time.Now()
	go func() { ended <- s.changeSteadily(ctx) }()
	work()
	rate = float64(s.changes.Load()-before) / time.Since(began).Seconds()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return rate
}

// changeSteadily replaces an endpoint of one Service after the other.
func (s *setup) changeSteadily(ctx context.Context) error {
	ticker := time.NewTicker(time.Second / changesPerSecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		change := int(s.changes.Add(1))
		number := change % s.services
		if err := s.update(context.WithoutCancel(ctx), serviceName(number), s.endpointsOf(number, change/s.services+1)...); err != nil {
			return err
		}
	}
}
