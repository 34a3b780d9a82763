//go:build e2e

package suites

import (
	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("trafficDistribution", func() {
	It("PreferSameZone keeps connections in the zone, and uses any endpoint if the zone has none", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace, trafficDistribution(corev1.ServiceTrafficDistributionPreferSameZone))
		targets := clusterIPs(service)
		expectEachInItsZone(ctx, "every zone has an endpoint", bothProtocols(targets), servers)
		empty := kube.zones()[0]
		here, elsewhere := servers.inZone(empty), servers.notInZone(empty)
		here[0].setReady(ctx, false)
		expectServers(ctx, "the zone is empty", podClients.inZone(empty), targets, elsewhere)
		expectEachInItsZone(ctx, "the other zones", targets, elsewhere)
		here[0].setReady(ctx, true)
		expectEachInItsZone(ctx, "the zone has an endpoint again", targets, servers)
	})

	It("PreferSameNode keeps connections on the node, then in the zone, and then uses any", Label(sixNodes), func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		pairs := kube.twoOfEachZone()
		first, second := pairs[0], pairs[1] // of one zone
		servers := kube.startPods(ctx, namespace, serversOn(pairs)...)
		service := newService(ctx, namespace, trafficDistribution(corev1.ServiceTrafficDistributionPreferSameNode))
		targets, client := clusterIPs(service), podClients.on(first)
		for _, n := range pairs {
			expectServers(ctx, "every node has an endpoint", podClients.on(n), bothProtocols(targets), servers.on(n))
		}
		servers.on(first)[0].setReady(ctx, false)
		expectServers(ctx, "none on the node", client, targets, servers.on(second))
		servers.on(second)[0].setReady(ctx, false)
		expectServers(ctx, "none in the zone", client, targets, servers.notInZone(first.zone))
		servers.on(first)[0].setReady(ctx, true)
		expectServers(ctx, "one on the node again", client, targets, servers.on(first))
	})

	It("is applied when it is set, changed and removed", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace)
		targets := clusterIPs(service)
		expectServers(ctx, "not set", podClients, targets, servers)
		changeService(ctx, service, trafficDistribution(corev1.ServiceTrafficDistributionPreferSameZone))
		expectEachInItsZone(ctx, "set", targets, servers)
		changeService(ctx, service, trafficDistribution(corev1.ServiceTrafficDistributionPreferSameNode))
		for _, server := range servers {
			expectServers(ctx, "changed", podClients.on(server.node), targets, testPods{server})
		}
		changeService(ctx, service, func(service *corev1.Service) { service.Spec.TrafficDistribution = nil })
		expectServers(ctx, "removed", podClients, targets, servers)
	})
})
