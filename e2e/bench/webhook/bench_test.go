// Package webhook measures the whole webhook, as a separate process, over TLS on loopback: the cost of a review, the
// latency of reviews at a steady rate, and the memory that remains in use.
//
//	this process                          webhook run ── kube-apiserver ── etcd
//	      persistent connections ── TLS ──┤
//	                                      floor: a net/http server that reads each body and sends a constant response
//
// The floor is the cost of TLS and HTTP in Go, whatever the response. Webhook and floor alternate in the same run,
// because times of one machine say little about another machine, and little about the same machine under other load.
// The cost of a review is the CPU time of the server alone, without the clients' CPU time.
package webhook_test

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// These are the documented limits for a review in the mix.
const (
	wantPerCore = 3000                 // reviews per second of CPU time
	wantP99     = 5 * time.Millisecond // at ratePerSecond
)

const (
	// connections is the number of connections that an API server's client keeps to an idle host (MaxIdleConnsPerHost in
	// k8s.io/apiserver's webhook clients).
	connections   = 25
	ratePerSecond = 1000

	warmUp         = 2000 // reviews of each server before the measurement
	saturationTime = 3 * time.Second
	// rounds is the number of rounds of each server, alternating, at the steady rate. They are many and short, so that
	// some of both servers' rounds are free of other load on the machine.
	rounds        = 10
	roundDuration = 3 * time.Second
)

// BenchmarkWebhook measures each kind of review at full speed, and the mix of them at a steady rate.
func BenchmarkWebhook(b *testing.B) {
	for b.Loop() {
		s := newSetup(b)
		results.loadBefore = loadAverage(b)
		for _, server := range s.servers() {
			server.warmUp(b)
		}
		results.memory = append(results.memory, s.webhook.sampleMemory(b))
		for _, kind := range append(kinds(b), mix(b)) {
			fmt.Fprintf(os.Stderr, "%s, at full speed ...\n", kind.name)
			results.costs = append(results.costs, costRow{kind, s.floor.saturate(b, kind), s.webhook.saturate(b, kind)})
		}
		results.memory = append(results.memory, s.webhook.sampleMemory(b))
		measureSteady(b, s)
		results.loadAfter = loadAverage(b)
	}
}

// measureSteady alternates between the servers at the steady rate.
func measureSteady(b *testing.B, s *setup) {
	b.Helper()
	reviews := mix(b)
	rows := make([]steadyRow, 0, len(s.servers()))
	for _, server := range s.servers() {
		rows = append(rows, steadyRow{server: server})
	}
	for round := range rounds {
		for i := range rows {
			row := &rows[i]
			fmt.Fprintf(os.Stderr, "%d reviews a second, round %d of %d: %s ...\n", ratePerSecond, round+1, rounds, row.server.name)
			row.add(row.server.steady(b, reviews, roundDuration))
		}
		if (round+1)%2 == 0 {
			results.memory = append(results.memory, s.webhook.sampleMemory(b))
		}
	}
	results.steady = rows
}
