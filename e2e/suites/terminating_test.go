//go:build e2e

package suites

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// terminatingGrace is how long a server keeps serving after SIGTERM: as long as the spec may need it.
const terminatingGrace = 5 * time.Minute

var _ = Describe("Terminating endpoints", func() {
	It("serve as long as no other endpoint is ready", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone(), afterSIGTERM(terminatingGrace))...)
		service := newService(ctx, namespace)
		targets := clusterIPs(service)
		expectServers(ctx, "all are ready", podClients, bothProtocols(targets), servers)
		last, others := servers[:1], servers[1:]
		kube.deletePods(ctx, others...)
		expectTerminating(ctx, service, others)
		expectServers(ctx, "one is ready", podClients, targets, last)
		kube.deletePods(ctx, last...)
		expectTerminating(ctx, service, servers)
		expectServers(ctx, "all terminate", podClients, targets, servers)
		fresh := kube.startPods(ctx, namespace, newPod("fresh", kube.nodes[0], selected))
		expectServers(ctx, "a new one is ready", podClients, targets, fresh)
	})

	It("serve for their node under the Local policies, while its load balancer health check fails", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		here, elsewhere := kube.nodes[0], kube.nodes[1]
		servers := kube.startPods(ctx, namespace, serversOn([]node{here, elsewhere}, afterSIGTERM(terminatingGrace))...)
		service := newService(ctx, namespace, loadBalancer, internalLocal, externalLocal)
		outside := nodeClients.notOn(here)
		expectServers(ctx, "ready", outside, nodePorts(service, here), servers.on(here))
		expectHealthCheck(ctx, service, here, http.StatusOK)
		kube.deletePods(ctx, servers.on(here)...)
		expectTerminating(ctx, service, servers.on(here))
		expectServers(ctx, "the node port", outside, nodePorts(service, here), servers.on(here))
		expectServers(ctx, "the ClusterIP", podClients.on(here), clusterIPs(service), servers.on(here))
		expectHealthCheck(ctx, service, here, http.StatusServiceUnavailable)
		expectHealthCheck(ctx, service, elsewhere, http.StatusOK)
	})

	It("serve for their zone if topology keys allow no other", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone(), afterSIGTERM(terminatingGrace))...)
		hard := newService(ctx, namespace, named("hard"), topologyKeys(corev1.LabelTopologyZone))
		soft := newService(ctx, namespace, named("soft"), topologyKeys(corev1.LabelTopologyZone+", *"))
		zone := kube.zones()[0]
		here, elsewhere := servers.inZone(zone), servers.notInZone(zone)
		expectEachInItsZone(ctx, "all are ready", append(clusterIPs(hard), clusterIPs(soft)...), servers)
		kube.deletePods(ctx, here...)
		expectTerminating(ctx, hard, here)
		expectServers(ctx, "the zone's endpoint terminates, and no other is allowed", podClients.inZone(zone), clusterIPs(hard), here)
		expectServers(ctx, "the zone's endpoint terminates, and others are ready", podClients.inZone(zone), clusterIPs(soft), elsewhere)
	})
})

// expectTerminating waits until the slices list every server as terminating and serving.
func expectTerminating(ctx context.Context, service *corev1.Service, servers testPods) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var found testPods
		for _, endpoint := range endpointsOf(ctx, service, isIPv6(service.Spec.ClusterIP)) {
			conditions := endpoint.Conditions
			if ptr.Deref(conditions.Terminating, false) && ptr.Deref(conditions.Serving, false) && endpoint.TargetRef != nil {
				found = append(found, testPod{name: endpoint.TargetRef.Name})
			}
		}
		g.Expect(found.names()).To(Equal(servers.names()), "endpoints that terminate and serve")
	}).WithContext(ctx).Should(Succeed())
}
