// Package daemons measures whole service proxies against a real API server, each on its own node: the time from the
// write of an EndpointSlice to the first packet on the new path, and the cost of the daemon, idle and under a steady
// stream of changes. It compares Vicinity with kube-proxy in nftables mode, of the version that the lab builds, on the
// same cluster in the same run.
//
//	  etcd, kube-apiserver            vicinity            kube-proxy             far
//	172.30.0.201 ───────── switch ──── node ─────────────── node ─────────────── node
//	                                    └─ client            └─ client            ├─ old
//	                                                                              └─ new
//
// Only one of the two proxies runs at a time, because the machine is small. Times of one machine say little about
// another machine; only the ratio is comparable. It needs root, and nft for kube-proxy.
package daemons_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

const endpointsPerService = 10

// The load is a number of endpoint changes per second for some time, to one Service after the other.
const (
	changesPerSecond = 100
	measureDuration  = 20 * time.Second
)

// BenchmarkDaemons starts each proxy at each size of the cluster and measures it.
func BenchmarkDaemons(b *testing.B) {
	for b.Loop() {
		s := newSetup(b)
		for _, services := range []int{10, 10_000} {
			s.grow(b, services)
			for _, start := range []func(*testing.B, *setup) *daemon{startVicinity, startKubeProxy} {
				measure(b, s, start(b, s), services)
			}
		}
	}
}

// rounds returns the number of measured changes. It is smaller for a proxy that takes seconds for one.
func rounds(took time.Duration) int {
	const budget = 30 * time.Second
	return max(10, min(200, int(budget/(took+pauseBetween))))
}

// measure measures one proxy and stops it.
func measure(b *testing.B, s *setup, d *daemon, services int) {
	b.Helper()
	fmt.Fprintf(os.Stderr, "%s, %d Services: first connection after %s; measuring ...\n", d.name, services, d.ready.Round(time.Millisecond))
	row := row{daemon: d.name, services: services, ready: d.ready}
	row.settling = d.waitIdle(b)
	row.idle = d.measure(b, measureDuration)
	row.idleMemory, _ = d.memory(b)
	fixedPause := func() time.Duration { return pauseBetween }
	for range rounds(s.timeNewPath(b, d, fixedPause())) {
		row.paths = append(row.paths, s.timeNewPath(b, d, fixedPause()))
	}
	row.rate = s.runUnderLoad(b, func() {
		row.loaded = d.measure(b, measureDuration)
		randomPause := func() time.Duration { return rand.N(pauseBetween) } // avoids a fixed delay after a sync
		for range rounds(s.timeNewPath(b, d, randomPause())) {
			row.loadedPaths = append(row.loadedPaths, s.timeNewPath(b, d, randomPause()))
		}
	})
	row.memory, row.peak = d.memory(b)
	d.stop(b)
	results = append(results, row)
}
