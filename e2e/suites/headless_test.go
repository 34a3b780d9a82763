//go:build e2e

package suites

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeDNS labels the specs for clusters in which each node has a DNS cache that queries the proxy first, as in
// manifests/dns.
const nodeDNS = "node-dns"

var _ = Describe("A headless Service with topology keys", Label(nodeDNS), func() {
	It("resolves to the StatefulSet member in the client's zone, and members find each other", long, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		all := newService(ctx, namespace, headless, named("db"), publishNotReady)
		near := newService(ctx, namespace, headless, named("db-near"), topologyKeys(corev1.LabelTopologyZone+", *"))
		here := newService(ctx, namespace, headless, named("db-here"), topologyKeys(corev1.LabelTopologyZone))
		members := kube.startStatefulSet(ctx, namespace, all.Name)
		clients := everyClient()

		expectAddressesByZone(ctx, "every zone has a member", near, members)
		expectAddressesByZone(ctx, "every zone has a member", here, members)
		expectAddresses(ctx, "members find each other", slices.Concat(members, clients), hostOf(all), members)
		expectMembers(ctx, slices.Concat(members, clients), all, members)
		for _, zone := range kube.zones() {
			byName := []target{overTCP(hostOf(near), dataPort)}
			expectServers(ctx, "clients that dial by name", podClients.inZone(zone), byName, members.inZone(zone))
		}

		empty := kube.zones()[0]
		members.inZone(empty)[0].setReady(ctx, false)
		began := time.Now()
		expectAddresses(ctx, "the zone is empty", clients.inZone(empty), hostOf(near), members.notInZone(empty))
		AddReportEntry("a zone is empty", fmt.Sprintf("its clients got the new addresses %s after its member became unready", time.Since(began)))
		expectAddressesByZone(ctx, "the other zones", near, members.notInZone(empty))
		expectNoAddress(ctx, "the zone is empty, and no other is allowed", clients.inZone(empty), hostOf(here))
		expectAddresses(ctx, "members find each other, ready or not", slices.Concat(members, clients), hostOf(all), members)
		expectMembers(ctx, slices.Concat(members, clients), all, members)
		members.inZone(empty)[0].setReady(ctx, true)
		expectAddressesByZone(ctx, "the zone has a member again", here, members)
		expectAddressesByZone(ctx, "the zone has a member again", near, members)
	})

	It("resolves to no server in an evacuated zone", Serial, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		near := newService(ctx, namespace, headless, topologyKeys(corev1.LabelTopologyZone+", *"))
		expectAddressesByZone(ctx, "before", near, servers)
		leaving := kube.zones()[0]
		for _, n := range kube.inZone(leaving) {
			setLabelForSpec(ctx, n, evacuateLabel, new("true"))
		}
		expectAddresses(ctx, "its own clients", everyClient().inZone(leaving), hostOf(near), servers.notInZone(leaving))
		expectAddressesByZone(ctx, "the other zones", near, servers.notInZone(leaving))
		for _, n := range kube.inZone(leaving) {
			setLabel(ctx, n, evacuateLabel, nil)
		}
		expectAddressesByZone(ctx, "after", near, servers)
	})
})

func headless(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone }

// publishNotReady is for members that discover each other before they are ready.
func publishNotReady(service *corev1.Service) { service.Spec.PublishNotReadyAddresses = true }

func hostOf(service *corev1.Service) string {
	return service.Name + "." + service.Namespace + ".svc.cluster.local"
}

// startStatefulSet creates a StatefulSet whose members discover each other through a Service, one member in each zone,
// and waits until all are ready.
func (c cluster) startStatefulSet(ctx context.Context, namespace, service string) testPods {
	GinkgoHelper()
	labels := map[string]string{appLabel: "web"}
	spec := podSpec()
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
	}}
	replicas := len(c.zones())
	_, err := c.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: service},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: service,
			Replicas:    new(int32(replicas)),
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template:    corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	members := make(testPods, replicas)
	for i := range members {
		Eventually(func(g Gomega) {
			pod, err := c.CoreV1().Pods(namespace).Get(ctx, fmt.Sprintf("%s-%d", service, i), metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(isReady(pod)).To(BeTrue(), "pod %s/%s is ready: %+v", namespace, pod.Name, pod.Status)
			members[i] = c.testPodOf(pod)
		}).WithContext(ctx).Should(Succeed())
	}
	return members
}

// expectAddresses waits until every client resolves the host to the addresses of these servers, and no others.
func expectAddresses(ctx context.Context, desc string, clients testPods, host string, servers testPods) {
	GinkgoHelper()
	var want []string
	for _, server := range servers {
		want = append(want, server.addresses...)
	}
	Expect(want).NotTo(BeEmpty(), "addresses of servers: %s", desc)
	for _, client := range clients {
		Eventually(func(g Gomega) {
			got, err := client.resolve(ctx, host)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(ConsistOf(want), "%s: addresses that %s gets for %s", desc, client, host)
		}).WithContext(ctx).Should(Succeed())
	}
}

// expectAddressesByZone waits until the clients in every zone that has servers resolve to those, and no others.
func expectAddressesByZone(ctx context.Context, desc string, service *corev1.Service, servers testPods) {
	GinkgoHelper()
	for _, zone := range kube.zones() {
		if local := servers.inZone(zone); len(local) > 0 {
			expectAddresses(ctx, desc+": "+zone, everyClient().inZone(zone), hostOf(service), local)
		}
	}
}

// expectMembers waits until every client resolves each member's own name to that member's addresses.
func expectMembers(ctx context.Context, clients testPods, service *corev1.Service, members testPods) {
	GinkgoHelper()
	for _, member := range members {
		expectAddresses(ctx, "a member by its name", clients, member.name+"."+hostOf(service), testPods{member})
	}
}

// expectNoAddress waits until every client's lookup finds no address, which is different from a timeout.
func expectNoAddress(ctx context.Context, desc string, clients testPods, host string) {
	GinkgoHelper()
	for _, client := range clients {
		Eventually(func(g Gomega) {
			_, err := client.resolve(ctx, host)
			g.Expect(err).To(MatchError(ContainSubstring("no such host")), "%s: error that %s gets for %s", desc, client, host)
		}).WithContext(ctx).Should(Succeed())
	}
}
