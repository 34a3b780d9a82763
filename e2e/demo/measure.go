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
	failuresWorthTrying = 3  // a client without responses would otherwise take minutes
	// A second would be enough if no other programs ran on the machine.
	connectionTimeout  = 10 * time.Second
	convergenceTimeout = time.Minute
)

// row has the results of one client's connections.
type row struct {
	node, zone string
	counts     []int // by location
	expected   []int // the locations where connections may go, in order
	failures   []error
}

// total returns the number of connections with a response.
func (r row) total() int {
	sum := 0
	for _, count := range r.counts {
		sum += count
	}
	return sum
}

// measure connects from every client to the Service and counts the responses by location.
func (s *setup) measure(ctx context.Context, emptied string) []row {
	rows := make([]row, len(s.locations))
	var measuring sync.WaitGroup
	for i, from := range s.locations {
		measuring.Go(func() { rows[i] = s.measureFrom(ctx, from, emptied) })
	}
	measuring.Wait()
	return rows
}

func (s *setup) measureFrom(ctx context.Context, from location, emptied string) row {
	r := row{node: from.node.Name, zone: from.zone, counts: make([]int, len(s.locations)), expected: s.expectedIndexes(from, emptied)}
	for i := range connections {
		if ctx.Err() != nil || len(r.failures) >= failuresWorthTrying {
			return r
		}
		index, err := connect(from, frontendOf(i), s.locations)
		if err != nil {
			r.failures = append(r.failures, err)
			continue
		}
		r.counts[index]++
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

// connect makes one connection and returns the index of the web pod that responded.
func connect(from location, frontend netip.AddrPort, webs []location) (int, error) {
	reply, err := from.client.Request("tcp", frontend, connectionTimeout)
	if err != nil {
		return 0, err
	}
	index := slices.IndexFunc(webs, func(loc location) bool { return loc.web.Name == reply.Pod })
	if index < 0 {
		return 0, fmt.Errorf("%s: response of %q, which is not a web pod", frontend, reply.Pod)
	}
	return index, nil
}

func (s *setup) expectedIndexes(from location, emptied string) []int {
	var indexes []int
	for _, loc := range s.expected(from.zone, emptied) {
		indexes = append(indexes, slices.Index(s.locations, loc))
	}
	return indexes
}

// convergence is the time from a change of the endpoints until connections reach the expected web pods.
type convergence struct {
	first, all time.Duration
}

// converge connects from each given location over both families until an expected web pod responds.
func (s *setup) converge(ctx context.Context, locations []location, emptied string, written time.Time) (convergence, error) {
	took := make([]time.Duration, len(locations))
	errs := make([]error, len(locations))
	var requests sync.WaitGroup
	for i, from := range locations {
		requests.Go(func() {
			errs[i] = s.dialUntilExpected(ctx, from, emptied)
			took[i] = time.Since(written)
		})
	}
	requests.Wait()
	return convergence{first: slices.Min(took), all: slices.Max(took)}, errors.Join(errs...)
}

func (s *setup) dialUntilExpected(ctx context.Context, from location, emptied string) error {
	ctx, cancel := context.WithTimeout(ctx, convergenceTimeout)
	defer cancel()
	expected := s.expectedIndexes(from, emptied)
	for _, frontend := range frontends {
		for {
			index, err := connect(from, frontend, s.locations)
			if err == nil && slices.Contains(expected, index) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("after %s, connections from %s to %s do not reach the expected web pods: %w",
					convergenceTimeout, from.node.Name, frontend, errors.Join(ctx.Err(), err))
			}
			time.Sleep(time.Millisecond) // limits the rate; an expected response ends the loop
		}
	}
	return nil
}
