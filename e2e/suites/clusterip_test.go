//go:build e2e

package suites

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A ClusterIP", func() {
	It("is served by every endpoint, for clients everywhere, over TCP, UDP and each family", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		service := newService(ctx, namespace)
		expectServers(ctx, "from pods", podClients, bothProtocols(clusterIPs(service)), servers)
		expectServers(ctx, "from nodes", nodeClients, clusterIPs(service), servers)
		for _, client := range podClients {
			for _, to := range clusterIPs(service) {
				expectClients(ctx, "a pod's address is kept", client, to, client.addressOf(to))
			}
		}
	})

	It("is served to a pod by itself if it is the only endpoint", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := kube.startPods(ctx, namespace, serversOn(kube.nodes[:1])...)
		service := newService(ctx, namespace)
		expectServers(ctx, "the endpoint dials itself", server, bothProtocols(clusterIPs(service)), server)
	})

	It("is refused immediately if no endpoint is ready or the Service lacks the port, and served again afterwards", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace)
		expectServers(ctx, "all are ready", podClients, clusterIPs(service), servers)
		var lacking []target
		for _, address := range service.Spec.ClusterIPs {
			lacking = append(lacking, overTCP(address, servicePort+1))
		}
		expectRefusal(ctx, "a port that the Service lacks", podClients, lacking)
		for _, server := range servers {
			server.setReady(ctx, false)
		}
		expectRefusal(ctx, "no endpoint is ready", everyClient(), clusterIPs(service))
		servers[0].setReady(ctx, true)
		expectServers(ctx, "one is ready again", podClients, clusterIPs(service), servers[:1])
	})

	It("is no longer served after its Service was deleted", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes[:1])...)
		service := newService(ctx, namespace)
		expectServers(ctx, "the Service exists", podClients, clusterIPs(service), servers)
		Expect(kube.CoreV1().Services(namespace).Delete(ctx, service.Name, metav1.DeleteOptions{})).To(Succeed())
		expectTimeout(ctx, "the Service was deleted, and its address is inside a ServiceCIDR", podClients[:1], clusterIPs(service))
	})
})
