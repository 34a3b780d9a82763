package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	connections         = 60 // from each client, every third of them over IPv6
	failuresWorthTrying = 3  // a client that gets no answers would otherwise take minutes
	// A second would do, if nothing else ran on the machine.
	connectionPatience  = 10 * time.Second
	convergencePatience = time.Minute
)

// row is where the connections of one client went.
type row struct {
	node, zone string
	counts     []int // by place
	wanted     []int // the places where connections may go, in order
	failures   []error
}

// total is the number of connections that were answered.
func (r row) total() int {
	sum := 0
	for _, count := range r.counts {
		sum += count
	}
	return sum
}

// measure connects from every client to the Service and counts who answers.
func (s *stage) measure(ctx context.Context, emptied string) []row {
	rows := make([]row, len(s.places))
	var measuring sync.WaitGroup
	for i, from := range s.places {
		measuring.Go(func() { rows[i] = s.measureFrom(ctx, from, emptied) })
	}
	measuring.Wait()
	return rows
}

func (s *stage) measureFrom(ctx context.Context, from place, emptied string) row {
	r := row{node: from.node.Name, zone: from.zone, counts: make([]int, len(s.places)), wanted: s.wantedIndexes(from, emptied)}
	for i := range connections {
		if ctx.Err() != nil || len(r.failures) >= failuresWorthTrying {
			return r
		}
		answered, err := connect(from, frontendOf(i), s.places)
		if err != nil {
			r.failures = append(r.failures, err)
			continue
		}
		r.counts[answered]++
	}
	return r
}

// frontendOf returns the address that connection i dials: every third one the IPv6 address.
func frontendOf(i int) netip.AddrPort {
	if i%3 == 2 {
		return frontends[1]
	}
	return frontends[0]
}

// connect makes one connection and returns which of the web pods' places answered.
func connect(from place, frontend netip.AddrPort, webs []place) (int, error) {
	reply, err := from.client.Ask("tcp", frontend, connectionPatience)
	if err != nil {
		return 0, err
	}
	answered := slices.IndexFunc(webs, func(p place) bool { return p.web.Name == reply.Pod })
	if answered < 0 {
		return 0, fmt.Errorf("%s was answered by %q, which is no web pod", frontend, reply.Pod)
	}
	return answered, nil
}

func (s *stage) wantedIndexes(from place, emptied string) []int {
	var indexes []int
	for _, p := range s.wanted(from.zone, emptied) {
		indexes = append(indexes, slices.Index(s.places, p))
	}
	return indexes
}

// convergence is how long a change of the endpoints took to show in connections.
type convergence struct {
	first, all time.Duration
}

// converge connects from each given place over both families until the answers are right.
func (s *stage) converge(ctx context.Context, places []place, emptied string, written time.Time) (convergence, error) {
	took := make([]time.Duration, len(places))
	errs := make([]error, len(places))
	var asking sync.WaitGroup
	for i, from := range places {
		asking.Go(func() {
			errs[i] = s.askUntilRight(ctx, from, emptied)
			took[i] = time.Since(written)
		})
	}
	asking.Wait()
	return convergence{first: slices.Min(took), all: slices.Max(took)}, errors.Join(errs...)
}

func (s *stage) askUntilRight(ctx context.Context, from place, emptied string) error {
	ctx, cancel := context.WithTimeout(ctx, convergencePatience)
	defer cancel()
	wanted := s.wantedIndexes(from, emptied)
	for _, frontend := range frontends {
		for {
			answered, err := connect(from, frontend, s.places)
			if err == nil && slices.Contains(wanted, answered) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("after %s, connections from %s to %s do not go where they should: %w",
					convergencePatience, from.node.Name, frontend, errors.Join(ctx.Err(), err))
			}
			time.Sleep(time.Millisecond) // a gentle pace; the answer ends the waiting
		}
	}
	return nil
}
