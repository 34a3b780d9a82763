//go:build e2e

package suites

import (
	"context"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("topology-mode Auto", func() {
	It("sends the clients of each zone to the endpoints with its hints", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		// The controller sets hints only if each zone can have endpoints in proportion to its CPUs: one endpoint on every
		// node.
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		service := newService(ctx, namespace, topologyMode("Auto"))
		for _, to := range clusterIPs(service) {
			hinted := expectZoneHints(ctx, service, isIPv6(to.address), servers)
			for _, zone := range kube.zones() {
				expectServers(ctx, "the hints for "+zone, podClients.inZone(zone), bothProtocols([]target{to}), hinted[zone])
			}
		}
		// With one endpoint, the controller removes all hints.
		for _, server := range servers[1:] {
			server.setReady(ctx, false)
		}
		expectServers(ctx, "too few for hints", podClients, clusterIPs(service), servers[:1])
	})
})

// topologyMode sets the annotation service.kubernetes.io/topology-mode.
func topologyMode(value string) serviceOption {
	return func(service *corev1.Service) {
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, corev1.AnnotationTopologyMode, value)
	}
}

// expectZoneHints waits until the controller has set a zone hint for every server in the slice of a family. It returns
// the servers by the zone of the hint, which may differ from the server's own.
func expectZoneHints(ctx context.Context, service *corev1.Service, ipv6 bool, servers testPods) map[string]testPods {
	GinkgoHelper()
	hinted := map[string]testPods{}
	Eventually(func(g Gomega) {
		clear(hinted)
		for _, endpoint := range endpointsOf(ctx, service, ipv6) {
			g.Expect(endpoint.Hints).NotTo(BeNil(), "hints of %s", endpoint.Addresses)
			g.Expect(endpoint.TargetRef).NotTo(BeNil(), "the pod of %s", endpoint.Addresses)
			server := servers.where(func(p testPod) bool { return p.name == endpoint.TargetRef.Name })
			for _, zone := range endpoint.Hints.ForZones {
				hinted[zone.Name] = append(hinted[zone.Name], server...)
			}
		}
		g.Expect(slices.Sorted(maps.Keys(hinted))).To(Equal(kube.zones()), "zones with hints")
		g.Expect(slices.Concat(slices.Collect(maps.Values(hinted))...)).To(HaveLen(len(servers)), "endpoints with a hint")
	}).WithContext(ctx).Should(Succeed())
	return hinted
}

// endpointsOf returns the endpoints in a Service's EndpointSlices of a family.
func endpointsOf(ctx context.Context, service *corev1.Service, ipv6 bool) []discoveryv1.Endpoint {
	GinkgoHelper()
	list, err := kube.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name,
	})
	Expect(err).NotTo(HaveOccurred())
	var all []discoveryv1.Endpoint
	for _, slice := range list.Items {
		if (slice.AddressType == discoveryv1.AddressTypeIPv6) == ipv6 {
			all = append(all, slice.Endpoints...)
		}
	}
	return all
}
