// Package webhook measures the whole webhook, as a process of its own, over TLS on loopback: what a review costs it,
// how long reviews at a steady rate take, and what stays in its memory.
//
//	this process                          webhook run ── kube-apiserver ── etcd
//	   connections that are kept ── TLS ──┤
//	                                      floor: a server of net/http that reads each body and answers the same
//
// The floor is what TLS and HTTP cost in Go, whatever is answered. Both take turns in the same run, because times of
// one machine say little about another, and little about the same one while it does something else. What a review
// costs is the processor time of the server alone: the clients run beside it and have their own.
package webhook_test

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// What is promised of a review in the mix.
const (
	wantPerCore = 3000                 // reviews for a second of processor time
	wantP99     = 5 * time.Millisecond // at ratePerSecond
)

const (
	// connections are as many as an API server's client keeps to a host that idles (MaxIdleConnsPerHost in
	// k8s.io/apiserver's webhook clients).
	connections   = 25
	ratePerSecond = 1000

	warmUp    = 2000 // reviews of each server before anything is measured
	saturated = 3 * time.Second
	// rounds are of each server in turn, at the steady rate: many and short, so that some of both are left alone by
	// whatever else the machine does.
	rounds     = 10
	roundTakes = 3 * time.Second
)

// BenchmarkWebhook measures each kind of review at full speed, and the mix of them at a steady rate.
func BenchmarkWebhook(b *testing.B) {
	for b.Loop() {
		s := newSetup(b)
		results.loadBefore = load(b)
		for _, server := range s.servers() {
			server.warmUp(b)
		}
		results.memory = append(results.memory, s.webhook.remember(b))
		for _, kind := range append(kinds(b), mix(b)) {
			fmt.Fprintf(os.Stderr, "%s, as fast as it goes ...\n", kind.name)
			results.costs = append(results.costs, costRow{kind, s.floor.saturate(b, kind), s.webhook.saturate(b, kind)})
		}
		results.memory = append(results.memory, s.webhook.remember(b))
		measureSteady(b, s)
		results.loadAfter = load(b)
	}
}

// measureSteady lets the servers take turns at the steady rate.
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
			row.add(row.server.steady(b, reviews, roundTakes))
		}
		if (round+1)%2 == 0 {
			results.memory = append(results.memory, s.webhook.remember(b))
		}
	}
	results.steady = rows
}
