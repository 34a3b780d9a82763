package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// load is the distribution of connections over the web pods.
type load struct {
	loadTopology
	setting
	counts      []int // by web pod
	stayedCount int   // connections that stayed in their zone
	failures    []error
}

// setting is the owner's setting for the Service's load.
type setting struct {
	name       string
	annotation string  // the load bound; empty for none
	maxLoad    float64 // bound of a web pod, as a multiple of the mean; infinite without a bound
	demand     string  // demand source of the bound; empty if all nodes have equal demand
}

var (
	unbounded = setting{name: "by zone preference alone", maxLoad: math.Inf(1)}
	assumed   = setting{"with max-load " + maxLoad, maxLoad, bound, ""}
	measured  = setting{"and with demand-source: measured", maxLoad, bound, policy.Measured}
)

// planned returns the topology with the demand that proxies plan with.
func (l load) planned() loadTopology {
	planned := l.loadTopology
	if l.demand == "" {
		planned.busy = ""
	}
	return planned
}

// expectedShare returns the share of all connections that should stay in their zone.
func (l load) expectedShare() float64 {
	sum, planned := 0.0, l.planned()
	for _, from := range l.clients {
		sum += planned.inZoneShare(from.zone, l.maxLoad) * float64(l.times(from.zone))
	}
	return sum / float64(l.total())
}

// relativeLoad returns the load of a web pod, as a multiple of the mean.
func (l load) relativeLoad(web int) float64 { return float64(l.counts[web]) / l.mean() }

// busiest returns the index of the web pod with the most connections.
func (l load) busiest() int { return slices.Index(l.counts, slices.Max(l.counts)) }

// stayedShare returns the share of the connections that stayed in their zone.
func (l load) stayedShare() float64 { return float64(l.stayedCount) / float64(l.total()) }

// measureLoad sets a setting for the Service, waits until it is applied everywhere, and counts the connections by web
// pod.
func (s *setup) measureLoad(ctx context.Context, topology loadTopology, loadSetting setting) (load, error) {
	l := load{loadTopology: topology, setting: loadSetting, counts: make([]int, len(topology.webs))}
	if err := s.writeService(loadSetting); err != nil {
		return l, err
	}
	planned, errs := l.planned(), make([]error, len(topology.clients))
	var dialling sync.WaitGroup
	for i, from := range topology.clients {
		dialling.Go(func() { errs[i] = topology.dialUntilAll(ctx, from, planned.expected(from.zone, loadSetting.maxLoad)) })
	}
	dialling.Wait()
	var mu sync.Mutex
	for _, from := range topology.clients {
		dialling.Go(func() {
			counts, failures := topology.dial(ctx, from, topology.times(from.zone), frontends)
			mu.Lock()
			defer mu.Unlock()
			l.add(from, counts, failures)
		})
	}
	dialling.Wait()
	return l, errors.Join(errs...)
}

// add adds the results of a client.
func (l *load) add(from location, counts []int, failures []error) {
	for web, count := range counts {
		l.counts[web] += count
		if l.webs[web].zone == from.zone {
			l.stayedCount += count
		}
	}
	l.failures = append(l.failures, failures...)
}

// dial connects the given number of times, alternating between the addresses, and counts the responses by web pod.
func (t loadTopology) dial(ctx context.Context, from location, times int, to []netip.AddrPort) (counts []int, failures []error) {
	counts = make([]int, len(t.webs))
	for i := range times {
		if ctx.Err() != nil || len(failures) >= failuresWorthTrying {
			break
		}
		index, err := connect(from, to[i%len(to)], t.webs)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		counts[index]++
	}
	return counts, failures
}

// dialUntilAll connects over both families until exactly the expected web pods respond to a sample.
func (t loadTopology) dialUntilAll(ctx context.Context, from location, expected []location) error {
	const sample = 60 // by chance, one of six with a twelfth each is missed in one of thirty samples
	ctx, cancel := context.WithTimeout(ctx, convergenceTimeout)
	defer cancel()
	for _, frontend := range frontends {
		for {
			counts, failures := t.dial(ctx, from, sample, []netip.AddrPort{frontend})
			reached := t.responding(counts)
			if len(failures) == 0 && slices.Equal(reached, webNames(expected)) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("after %s, connections from %s to %s reach %v, want %v: %w",
					convergenceTimeout, from.node.Name, frontend, reached, webNames(expected), errors.Join(append(failures, ctx.Err())...))
			}
			time.Sleep(time.Millisecond) // limits the rate; a correct sample ends the loop
		}
	}
	return nil
}

// responding returns the names of the web pods with responses.
func (t loadTopology) responding(counts []int) []string {
	var found []string
	for web, count := range counts {
		if count > 0 {
			found = append(found, t.webs[web].web.Name)
		}
	}
	return found
}

func webNames(locations []location) []string {
	names := make([]string, 0, len(locations))
	for _, loc := range locations {
		names = append(names, loc.web.Name)
	}
	return names
}
