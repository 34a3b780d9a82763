//go:build e2e

package suites

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// evacuateLabel takes a node's endpoints out of new connections.
	evacuateLabel = "vicinity.dev/evacuate"
	// evacuatedWithin is how soon after the last node's label new connections obey it.
	evacuatedWithin = time.Second
)

var _ = Describe("An evacuation of a zone", Serial, func() {
	It("moves new connections within a second, and loses none though the zone's pods are killed and come back", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		// Those that stay are uneven, so that a bound has something to do when the zone has left.
		crowded, leaving, lone := kube.zones()[0], kube.zones()[1], kube.zones()[2]
		staying := kube.startPods(ctx, namespace, append(serversIn(crowded, "web", 5), serversIn(lone, "web", 1)...)...)
		evacuated := kube.startPods(ctx, namespace, serversIn(leaving, "web", 2)...)
		services := unevenServices{
			preferring: newService(ctx, namespace, named("preferring"), preferSameZone),
			bounded:    newService(ctx, namespace, named("bounded"), preferSameZone, withinBound),
		}
		services.measure(ctx, "before", slices.Concat(staying, evacuated))
		// Not from the pods, which make new ones: a server that is killed resets its connections, and for ten seconds the
		// kernel still translates what comes from their ports. A new connection from one of them would be lost.
		open := hold(ctx, nodeClients, services.targets())
		expectAlive(ctx, "before", open)
		toEvacuated, others := byServer(ctx, open, evacuated)
		Expect(toEvacuated).NotTo(BeEmpty(), "open connections to the zone")
		clients := startSteady(ctx, podClients, clusterIPs(services.bounded))

		for _, on := range kube.inZone(leaving) {
			labelNode(ctx, on, evacuateLabel, new("true"))
		}
		time.Sleep(evacuatedWithin)
		services.expectNone(ctx, "while the zone is evacuated", evacuated)
		services.measure(ctx, "while the zone is evacuated", staying)
		expectAlive(ctx, "while the zone is evacuated", open)

		for _, on := range kube.inZone(leaving) {
			cordon(ctx, on)
		}
		killPods(ctx, evacuated...)
		expectEnded(ctx, "its server was killed", toEvacuated)
		expectAlive(ctx, "pods of the zone were killed, to which these do not go", others)
		services.expectNone(ctx, "after the zone's pods were killed", evacuated)

		for _, on := range kube.inZone(leaving) {
			setUnschedulable(ctx, on, false)
		}
		returned := kube.startPods(ctx, namespace, serversIn(leaving, "again", 2)...)
		services.expectNone(ctx, "new pods in the zone, which is evacuated still", returned)
		for _, on := range kube.inZone(leaving) {
			patchLabel(ctx, on, evacuateLabel, nil)
		}
		services.measure(ctx, "after", slices.Concat(staying, returned))
		expectAlive(ctx, "after", others)
		total := clients.expectNoneLost("from before the label until after it")
		AddReportEntry("connections", fmt.Sprintf("%d new ones, %d failed; of %d open ones %d ended, which went to pods that were killed",
			total.answered(), total.failed(), len(open), len(toEvacuated)))
	})
})

// serversIn makes so many servers in a zone, on its nodes in turn.
func serversIn(zone, prefix string, count int) []*corev1.Pod {
	var pods []*corev1.Pod
	nodes := kube.inZone(zone)
	for number := range count {
		pods = append(pods, newPod(fmt.Sprintf("%s-%s-%d", prefix, zone, number), nodes[number%len(nodes)], selected))
	}
	return pods
}

// unevenServices have the same servers, of which some would be overloaded by zone preference alone.
type unevenServices struct{ preferring, bounded *corev1.Service }

func (s unevenServices) targets() []target {
	return append(clusterIPs(s.preferring), clusterIPs(s.bounded)...)
}

// measure waits until the bound is in force among the servers, and reports what each of them gets, with and without it.
func (s unevenServices) measure(ctx context.Context, when string, servers probes) {
	GinkgoHelper()
	expectEachInItsZone(ctx, when, clusterIPs(s.preferring), servers)
	alone := loadOf(ctx, s.preferring, servers)
	expectBound(ctx, s.bounded, alone)
	got := loadOf(ctx, s.bounded, servers)
	AddReportEntry(when, fmt.Sprintf("%s\n%s", alone, got))
	Expect(alone.busiest()).To(BeNumerically(">", bound+alone.noise()), "%s: no server is overloaded, and nothing is shown: %s", when, alone)
	Expect(got.busiest()).To(BeNumerically("<=", bound+got.noise()), "%s: the busiest server of %s", when, got)
}

// expectNone has every client connect to both Services now, and sees none of some servers.
func (s unevenServices) expectNone(ctx context.Context, why string, of probes) {
	GinkgoHelper()
	connections := 0
	for _, got := range dialAll(ctx, podClients, s.targets(), dialling{count: sample, timeout: patient}) {
		Expect(got.err).NotTo(HaveOccurred())
		Expect(got.answered()).To(Equal(sample), "%s: connections that are answered: %s", why, got)
		for _, server := range of {
			Expect(got.Answers).NotTo(HaveKey(server.name), "%s: who answers: %s", why, got)
		}
		connections += got.answered()
	}
	AddReportEntry(why, fmt.Sprintf("none of %d new connections goes to %v", connections, of.names()))
}

// byServer divides open connections into those with some servers, and others.
func byServer(ctx context.Context, all []held, servers probes) (with, others []held) {
	GinkgoHelper()
	for _, h := range all {
		got, err := h.state(ctx)
		Expect(err).NotTo(HaveOccurred())
		if slices.Contains(servers.names(), got.Server) {
			with = append(with, h)
		} else {
			others = append(others, h)
		}
	}
	return with, others
}

// expectEnded waits until no connection is open any more.
func expectEnded(ctx context.Context, why string, all []held) {
	GinkgoHelper()
	for _, h := range all {
		Eventually(func(g Gomega) {
			got, err := h.state(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Alive).To(BeFalse(), "%s: a connection of %s to %s is open", why, h.client, got.Server)
		}).WithContext(ctx).Should(Succeed())
	}
}

// cordon keeps new pods from a node, until the spec ends at the latest.
func cordon(ctx context.Context, on node) {
	GinkgoHelper()
	DeferCleanup(func(ctx SpecContext) { setUnschedulable(ctx, on, false) })
	setUnschedulable(ctx, on, true)
}

func setUnschedulable(ctx context.Context, on node, value bool) {
	GinkgoHelper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, value)
	_, err := kube.CoreV1().Nodes().Patch(ctx, on.name, types.MergePatchType, patch, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// killPods ends pods without any grace, as the loss of their node would.
func killPods(ctx context.Context, pods ...probe) {
	GinkgoHelper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	for _, pod := range pods {
		Expect(kube.CoreV1().Pods(pod.namespace).Delete(ctx, pod.name, now)).To(Succeed(), "pod %s", pod.name)
	}
}
