//go:build e2e

package suites

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// An expectation about connections must hold for all of a sample, never for most of it.
const (
	// sample is the number of connections that a client makes for one expectation. The probability that it misses one of
	// six endpoints is 1 in 10,000. Where each endpoint must be used, a missed one only means that the expectation is
	// checked again.
	sample = 60
	// timeoutSample is the number of connections where none should succeed, because each of them waits for its timeout.
	timeoutSample = 2
	// successTimeout is the timeout of a connection that should succeed, and failureTimeout of one that should fail.
	successTimeout = 10 * time.Second
	failureTimeout = 2 * time.Second
)

// expectServers waits until every client's whole sample to every target gets replies from these servers only, and each
// of them is used.
func expectServers(ctx context.Context, desc string, clients testPods, targets []target, servers testPods) {
	GinkgoHelper()
	Expect(servers).NotTo(BeEmpty(), "servers: %s", desc)
	Eventually(func(g Gomega) {
		// A single connection first: otherwise clients would wait for a whole sample of timeouts before anything works.
		for _, how := range []dialling{{count: 1, timeout: failureTimeout}, {count: sample, timeout: successTimeout}} {
			for _, got := range dialAll(ctx, clients, targets, how) {
				g.Expect(got.err).NotTo(HaveOccurred())
				g.Expect(got.replies()).To(Equal(how.count), "%s: connections with a reply: %s", desc, got)
				g.Expect(servers.names()).To(ContainElements(got.servers()), "%s: allowed servers: %s", desc, got)
				if how.count == sample {
					g.Expect(got.servers()).To(Equal(servers.names()), "%s: servers: %s", desc, got)
				}
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectRefusal waits until all connections of a sample, from every client to every target, are refused immediately.
func expectRefusal(ctx context.Context, desc string, clients testPods, targets []target) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, count := range []int{1, sample} {
			for _, got := range dialAll(ctx, clients, targets, dialling{count: count, timeout: failureTimeout}) {
				g.Expect(got.err).NotTo(HaveOccurred())
				g.Expect(got.refused()).To(Equal(count), "%s: refused connections: %s", desc, got)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectTimeout waits until no client gets any reply.
func expectTimeout(ctx context.Context, desc string, clients testPods, targets []target) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, got := range dialAll(ctx, clients, targets, dialling{count: timeoutSample, timeout: failureTimeout}) {
			g.Expect(got.err).NotTo(HaveOccurred())
			g.Expect(got.timeouts()).To(Equal(timeoutSample), "%s: connections that time out: %s", desc, got)
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectClients checks once which client addresses the servers see for the connections of a client.
func expectClients(ctx context.Context, desc string, client testPod, to target, expected ...string) {
	GinkgoHelper()
	got, err := client.dial(ctx, to, dialling{count: sample, timeout: successTimeout})
	Expect(err).NotTo(HaveOccurred())
	Expect(got.replies()).To(Equal(sample), "%s: connections from %s to %s with a reply: %s", desc, client, to, got)
	for address := range got.Clients {
		Expect(expected).To(ContainElement(address), "%s: client addresses that servers see when %s dials %s: %s", desc, client, to, got)
	}
}
