//go:build e2e

package suites

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Session affinity", func() {
	It("keeps each client with its endpoint, whichever frontend it dials", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		service := newService(ctx, namespace, nodePort, affinity(3600))
		for i, client := range podClients {
			for _, to := range clusterIPs(service) {
				kept := expectOneServer(ctx, "the ClusterIP", client, to)
				for _, sameFamily := range nodePorts(service, kube.nodes[i]) {
					if isIPv6(sameFamily.address) == isIPv6(to.address) {
						Expect(expectOneServer(ctx, "the node port of the client's node", client, sameFamily)).To(Equal(kept),
							"the endpoint of %s", client)
					}
				}
			}
		}
		Expect(servers).To(HaveLen(len(kube.nodes)))
	})

	It("is enabled and disabled while clients dial", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		service := newService(ctx, namespace)
		expectServers(ctx, "without affinity", podClients[:1], clusterIPs(service), servers)
		changeService(ctx, service, affinity(3600))
		for _, to := range clusterIPs(service) {
			expectOneServer(ctx, "enabled", podClients[0], to)
		}
		changeService(ctx, service, noAffinity)
		expectServers(ctx, "disabled", podClients[:1], clusterIPs(service), servers)
	})

	It("never keeps a client on an endpoint that is not ready", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace, affinity(3600))
		to := clusterIPs(service)[0]
		// Remove the endpoints one by one: in the end the client has moved away from every endpoint that it had affinity to.
		for range servers {
			kept := expectOneServer(ctx, "kept", podClients[0], to)
			server := servers.where(func(p testPod) bool { return p.name == kept })
			Expect(server).To(HaveLen(1), "the server %s", kept)
			server[0].setReady(ctx, false)
			Eventually(func(g Gomega) {
				got, err := podClients[0].dial(ctx, to, dialling{count: sample, timeout: successTimeout})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got.servers()).NotTo(ContainElement(kept), "servers after %s became unready: %s", kept, got)
			}).WithContext(ctx).Should(Succeed())
		}
	})

	It("ends when the client stays away for longer than the timeout", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		const timeout = 1 // second
		service := newService(ctx, namespace, affinity(timeout))
		to := clusterIPs(service)[0]
		// Affinity is checked within one burst of connections, which is much shorter than the timeout.
		kept := expectOneServer(ctx, "kept", podClients[0], to)
		// The client may get the same endpoint again by chance, but not every time.
		Eventually(func(g Gomega) {
			got, err := podClients[0].dial(ctx, to, dialling{count: 1, timeout: successTimeout})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.replies()).To(Equal(1), "connections with a reply: %s", got)
			g.Expect(got.servers()).NotTo(Equal([]string{kept}), "the endpoint after a pause")
		}).WithContext(ctx).WithPolling(3 * timeout * time.Second).Should(Succeed())
	})
})

// expectOneServer waits until a single server replies to a whole sample of connections, and returns its name.
func expectOneServer(ctx context.Context, desc string, client testPod, to target) string {
	GinkgoHelper()
	var name string
	Eventually(func(g Gomega) {
		_, err := client.dial(ctx, to, dialling{count: 1, timeout: failureTimeout})
		g.Expect(err).NotTo(HaveOccurred())
		got, err := client.dial(ctx, to, dialling{count: sample, timeout: successTimeout})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.replies()).To(Equal(sample), "%s: connections from %s to %s with a reply: %s", desc, client, to, got)
		g.Expect(got.servers()).To(HaveLen(1), "%s: servers that reply to %s at %s: %s", desc, client, to, got)
		name = got.servers()[0]
	}).WithContext(ctx).Should(Succeed())
	return name
}
