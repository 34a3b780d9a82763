//go:build e2e

package suites

import (
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("internalTrafficPolicy", func() {
	It("Local keeps clients on the endpoints of their node, and drops connections without one", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		with, without := kube.nodes[:2], kube.nodes[2]
		servers := kube.startPods(ctx, namespace, serversOn(with)...)
		service := newService(ctx, namespace, internalLocal)
		targets := clusterIPs(service)
		for _, n := range with {
			expectServers(ctx, "a node with an endpoint", append(podClients.on(n), nodeClients.on(n)...), targets, servers.on(n))
		}
		expectTimeout(ctx, "a node without", append(podClients.on(without), nodeClients.on(without)...), targets)
		changeService(ctx, service, func(service *corev1.Service) {
			*service.Spec.InternalTrafficPolicy = corev1.ServiceInternalTrafficPolicyCluster
		})
		expectServers(ctx, "Cluster", everyClient(), targets, servers)
	})
})

var _ = Describe("externalTrafficPolicy", func() {
	It("Local keeps external clients on the node that they dial, and preserves their address", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		with, without := kube.nodes[:2], kube.nodes[2]
		servers := kube.startPods(ctx, namespace, serversOn(with)...)
		service := newService(ctx, namespace, nodePort, externalLocal)
		outside := nodeClients.notOn(with[0], without)
		for _, to := range nodePorts(service, with[0]) {
			expectServers(ctx, "a node with an endpoint", outside, []target{to}, servers.on(with[0]))
			for _, client := range outside {
				expectClients(ctx, "a client's address is kept", client, to, client.addressOf(to))
			}
		}
		targets := nodePorts(service, without)
		expectTimeout(ctx, "a node without", outside[:1], targets)
		inside := append(nodeClients.on(without), podClients.on(without)...)
		expectServers(ctx, "clients on the node itself may use any endpoint", inside, targets, servers)
		expectServers(ctx, "the ClusterIP is not affected", podClients.on(without), clusterIPs(service), servers)
	})

	It("Cluster sends external clients to any endpoint, and masquerades them", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace, nodePort)
		n := kube.nodes[0]
		client := nodeClients.notOn(n)[0]
		for _, to := range nodePorts(service, n) {
			expectServers(ctx, "from outside", testPods{client}, []target{to}, servers)
			got, err := client.dial(ctx, to, dialling{count: sample, timeout: successTimeout})
			Expect(err).NotTo(HaveOccurred())
			Expect(got.replies()).To(Equal(sample), "connections with a reply: %s", got)
			Expect(got.Clients).NotTo(HaveKey(client.addressOf(to)), "client addresses that servers see: %s", got)
		}
	})

	It("Local reports to load balancers, on the health check node port, which nodes have ready endpoints", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		with, without := kube.nodes[0], kube.nodes[1]
		servers := kube.startPods(ctx, namespace, serversOn([]node{with})...)
		service := newService(ctx, namespace, loadBalancer, externalLocal)
		expectHealthCheck(ctx, service, with, http.StatusOK)
		expectHealthCheck(ctx, service, without, http.StatusServiceUnavailable)
		servers[0].setReady(ctx, false)
		expectHealthCheck(ctx, service, with, http.StatusServiceUnavailable)
		servers[0].setReady(ctx, true)
		expectHealthCheck(ctx, service, with, http.StatusOK)
	})
})

// expectHealthCheck waits until a node responds with a status on the Service's health check node port. The request goes
// through the API server's proxy.
func expectHealthCheck(ctx context.Context, service *corev1.Service, n node, status int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var got int
		body, err := kube.CoreV1().RESTClient().Get().Resource("nodes").
			Name(fmt.Sprintf("http:%s:%d", n.name, service.Spec.HealthCheckNodePort)).SubResource("proxy").Suffix("healthz").
			Do(ctx).StatusCode(&got).Raw()
		g.Expect(got).To(Equal(status), "status of %s on the health check node port: %s (%v)", n.name, body, err)
		g.Expect(string(body)).To(ContainSubstring(service.Namespace), "namespace of the Service in the response")
	}).WithContext(ctx).Should(Succeed())
}
