//go:build e2e

package suites

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clientPort returns the source port of a client that always sends from one port. Conntrack sees one flow, which would
// stay with its first endpoint while the client keeps sending. Each process of the suites has its own port, below the
// kernel's ephemeral ports.
func clientPort() int { return 20_000 + GinkgoParallelProcess() }

var _ = Describe("A UDP client that always sends from one port", func() {
	It("continues with the new endpoint when its endpoint is replaced", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		first := kube.startPods(ctx, namespace, newPod("first", kube.nodes[0], selected))
		service := newService(ctx, namespace, nodePort)
		clients := podClients.on(kube.nodes[0], kube.nodes[1])
		targets := overUDP(append(clusterIPs(service), nodePorts(service, kube.nodes[1])...))
		expectFlows(ctx, "the first endpoint", clients, targets, first)
		kube.deletePods(ctx, first...)
		second := kube.startPods(ctx, namespace, newPod("second", kube.nodes[1], selected))
		expectFlows(ctx, "the second endpoint", clients, targets, second)
	})

	It("continues with another endpoint when its own becomes unready, although that still serves", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes[:2])...)
		service := newService(ctx, namespace)
		targets := overUDP(clusterIPs(service))
		servers[1].setReady(ctx, false)
		expectFlows(ctx, "the only endpoint", podClients[2:3], targets, servers[:1])
		servers[1].setReady(ctx, true)
		servers[0].setReady(ctx, false)
		expectFlows(ctx, "the other endpoint", podClients[2:3], targets, servers[1:])
	})

	It("gets replies when its Service gets a first endpoint, although it sent before", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		service := newService(ctx, namespace)
		targets := overUDP(clusterIPs(service))
		for _, to := range targets {
			got, err := podClients[0].dial(ctx, to, dialling{count: timeoutSample, timeout: failureTimeout, sourcePort: clientPort()})
			Expect(err).NotTo(HaveOccurred())
			Expect(got.failed()).To(Equal(timeoutSample), "datagrams without a reply while there is no endpoint: %s", got)
		}
		server := kube.startPods(ctx, namespace, serversOn(kube.nodes[:1])...)
		expectFlows(ctx, "the first endpoint", podClients[:1], targets, server)
	})
})

var _ = Describe("DNS", func() {
	It("is served through its Service on every node, and resolves names to ClusterIPs", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		service := newService(ctx, namespace)
		kubernetes, err := kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, client := range everyClient() {
			for _, named := range []struct {
				host      string
				addresses []string
			}{
				{host: hostName(service), addresses: service.Spec.ClusterIPs},
				{host: hostName(kubernetes), addresses: kubernetes.Spec.ClusterIPs},
			} {
				Eventually(func(g Gomega) {
					found, err := client.resolve(ctx, named.host)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(found).To(ConsistOf(named.addresses), "addresses that %s gets for %s", client, named.host)
				}).WithContext(ctx).Should(Succeed())
			}
		}
	})
})

func overUDP(tcp []target) []target {
	var all []target
	for _, to := range tcp {
		all = append(all, to.overUDP())
	}
	return all
}

// expectFlows waits until one server replies to all datagrams that clients send from their one port.
func expectFlows(ctx context.Context, desc string, clients testPods, targets []target, server testPods) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, count := range []int{1, 10} {
			// One target at a time, because only one socket can bind the port.
			for _, to := range targets {
				for _, got := range dialAll(ctx, clients, []target{to}, dialling{count: count, timeout: failureTimeout, sourcePort: clientPort()}) {
					g.Expect(got.err).NotTo(HaveOccurred())
					g.Expect(got.replies()).To(Equal(count), "%s: datagrams with a reply: %s", desc, got)
					g.Expect(got.servers()).To(Equal(server.names()), "%s: servers: %s", desc, got)
				}
			}
		}
	}).WithContext(ctx).Should(Succeed())
}
