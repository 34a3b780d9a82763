package daemons_test

import (
	"context"
	"testing"
	"time"
)

// pauseBetween lies between two changes that are followed: kube-proxy's default pause between two syncs is a second,
// and a change that comes later is taken up at once.
const pauseBetween = 1200 * time.Millisecond

// follow waits for a while, replaces the endpoint of the Service that is dialled, and returns how long it took from
// the write to the first packet that reaches the new one: the request to the API server is part of it.
func (s *town) follow(b *testing.B, d *daemon, pause time.Duration) time.Duration {
	b.Helper()
	defer func() { s.old, s.new = s.new, s.old }()
	time.Sleep(pause)
	written := make(chan error, 1)
	started := time.Now()
	go func() { written <- s.update(b.Context(), "probe", s.new.IPv4) }()
	answered := d.waitFor(b, s, s.new)
	if err := <-written; err != nil {
		b.Fatal(err)
	}
	return answered.Sub(started)
}

// load changes endpoints at a steady rate meanwhile, and returns the rate that was reached: the API server may not
// take more.
func (s *town) load(b *testing.B, meanwhile func()) (rate float64) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	ended := make(chan error, 1)
	before, began := s.changes.Load(), time.Now()
	go func() { ended <- s.changeSteadily(ctx) }()
	meanwhile()
	rate = float64(s.changes.Load()-before) / time.Since(began).Seconds()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return rate
}

// changeSteadily replaces an endpoint of one Service after the other.
func (s *town) changeSteadily(ctx context.Context) error {
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
