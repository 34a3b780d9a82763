//go:build e2e

package suites

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A node port", func() {
	It("is served on every node to pods, the node itself and other nodes, over TCP, UDP and each family", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace, nodePort)
		Expect(service.Spec.Ports[1].NodePort).To(Equal(service.Spec.Ports[0].NodePort), "the node ports of TCP and UDP")
		for _, n := range kube.nodes {
			targets := nodePorts(service, n)
			expectServers(ctx, "from pods", podClients[:2], bothProtocols(targets), servers)
			expectServers(ctx, "from the node itself", nodeClients.on(n), targets, servers)
			expectServers(ctx, "from another node", nodeClients.notOn(n)[:1], bothProtocols(targets), servers)
		}
	})

	It("is not served on loopback", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes[:1])...)
		service := newService(ctx, namespace, nodePort)
		n := kube.nodes[0]
		expectServers(ctx, "the node's address", nodeClients.on(n), nodePorts(service, n), servers)
		number := service.Spec.Ports[0].NodePort
		expectRefusal(ctx, "loopback", nodeClients.on(n), []target{overTCP("127.0.0.1", number)})
	})

	It("is removed and restored with the type of its Service", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes[:1])...)
		service := newService(ctx, namespace, nodePort)
		targets := nodePorts(service, kube.nodes[1])
		expectServers(ctx, "type NodePort", nodeClients[:1], targets, servers)
		changeService(ctx, service, func(service *corev1.Service) {
			service.Spec.Type = corev1.ServiceTypeClusterIP
			for i := range service.Spec.Ports {
				service.Spec.Ports[i].NodePort = 0
			}
		})
		expectRefusal(ctx, "type ClusterIP", nodeClients[:1], targets)
		expectServers(ctx, "type ClusterIP", podClients[:1], clusterIPs(service), servers)
		changed := changeService(ctx, service, nodePort)
		expectServers(ctx, "type NodePort again", nodeClients[:1], nodePorts(changed, kube.nodes[1]), servers)
	})
})

var _ = Describe("An address from outside the cluster", func() {
	It("is served wherever it is dialled, although no node has it", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		// Documentation addresses (RFC 5737), to which no router has a route.
		external, ingress := "203.0.113.80", "203.0.113.81"
		service := newService(ctx, namespace, loadBalancer, func(service *corev1.Service) {
			service.Spec.ExternalIPs = []string{external}
		})
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ingress}}
		_, err := kube.CoreV1().Services(namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		targets := bothProtocols([]target{overTCP(external, servicePort), overTCP(ingress, servicePort)})
		expectServers(ctx, "from pods", podClients, targets, servers)
		expectServers(ctx, "from nodes", nodeClients, targets, servers)
	})
})
