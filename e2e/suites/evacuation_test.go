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
)

const (
	// evacuateLabel excludes a node's endpoints from new connections.
	evacuateLabel = "vicinity.dev/evacuate"
	// evacuatedWithin is the deadline for new connections to avoid the nodes, after the last node is labelled.
	evacuatedWithin = time.Second
)

var _ = Describe("An evacuation of a zone", Serial, Label(nodePower), func() {
	It("moves new connections within a second, and loses none although the zone's nodes are removed and replaced", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		// The remaining servers are unevenly distributed, so that the load bound has an effect after the
		// zone is evacuated.
		crowded, leaving, lone := kube.zones()[0], kube.zones()[1], kube.zones()[2]
		staying := kube.startPods(ctx, namespace, append(serversIn(crowded, "web", 5), serversIn(lone, "web", 1)...)...)
		evacuated := kube.startPods(ctx, namespace, serversIn(leaving, "web", 2)...)
		services := unevenServices{
			preferring: newService(ctx, namespace, named("preferring"), preferSameZone),
			bounded:    newService(ctx, namespace, named("bounded"), preferSameZone, withLoadBound),
		}
		anywhere := clusterIPs(newService(ctx, namespace, named("anywhere")))
		expectServers(ctx, "before", nodeClients.notInZone(leaving), anywhere, slices.Concat(staying, evacuated))
		services.expectLoadBound(ctx, "before", slices.Concat(staying, evacuated))
		// There are enough connections for some to go to the leaving zone: the probability that none does is below 1 in
		// 500,000.
		open := hold(ctx, nodeClients.notInZone(leaving), slices.Concat(slices.Repeat(anywhere, 6), services.targets()))
		expectAlive(ctx, "before", open)
		toEvacuated, others := byServer(ctx, open, evacuated)
		Expect(toEvacuated).NotTo(BeEmpty(), "open connections to the zone")
		clients := startSteady(ctx, podClients.notInZone(leaving), services.targets())

		for _, n := range kube.inZone(leaving) {
			setLabelForSpec(ctx, n, evacuateLabel, new("true"))
		}
		time.Sleep(evacuatedWithin)
		services.expectNone(ctx, "while the zone is evacuated", podClients, evacuated)
		services.expectLoadBound(ctx, "while the zone is evacuated", staying)
		expectAlive(ctx, "while the zone is evacuated", open)

		kube.stopNodes(ctx, kube.inZone(leaving))
		services.expectNone(ctx, "when the zone's nodes lost power", podClients.notInZone(leaving), evacuated)
		// A Node's label is deleted with it, and slices list its pods for a while. Its dead endpoints must remain the last
		// choice.
		kube.deleteNodes(ctx, kube.inZone(leaving))
		services.expectNone(ctx, "after the zone's Nodes were deleted, and before its pods", podClients.notInZone(leaving), evacuated)
		kube.deletePodsOn(ctx, kube.inZone(leaving))
		expectEnded(ctx, "its server's node was removed", toEvacuated)
		expectAlive(ctx, "connections to other nodes after the zone was removed", others)
		services.expectNone(ctx, "after the zone's pods were deleted, too", podClients.notInZone(leaving), evacuated)

		kube.startNodes(ctx, kube.inZone(leaving))
		for _, n := range kube.inZone(leaving) { // the new Nodes have no label
			setLabel(ctx, n, evacuateLabel, new("true"))
		}
		returned := kube.startPods(ctx, namespace, serversIn(leaving, "again", 2)...)
		services.expectNone(ctx, "new pods in the zone, which is evacuated again", podClients, returned)
		for _, n := range kube.inZone(leaving) {
			setLabel(ctx, n, evacuateLabel, nil)
		}
		services.expectLoadBound(ctx, "after", slices.Concat(staying, returned))
		expectAlive(ctx, "after", others)
		total := clients.expectNoneLost("from before the label until after it")
		AddReportEntry("connections", fmt.Sprintf("%d new ones, %d failed; of %d open ones %d ended, which went to removed nodes",
			total.replies(), total.failed(), len(open), len(toEvacuated)))
	})
})

// serversIn returns count servers in a zone, on its nodes round-robin.
func serversIn(zone, prefix string, count int) []*corev1.Pod {
	var pods []*corev1.Pod
	nodes := kube.inZone(zone)
	for number := range count {
		pods = append(pods, newPod(fmt.Sprintf("%s-%s-%d", prefix, zone, number), nodes[number%len(nodes)], selected))
	}
	return pods
}

// unevenServices have the same servers, some of which zone preference alone would overload.
type unevenServices struct{ preferring, bounded *corev1.Service }

func (s unevenServices) targets() []target {
	return append(clusterIPs(s.preferring), clusterIPs(s.bounded)...)
}

// expectLoadBound waits until the load bound is applied to the servers. Then it checks that the bound holds, and that
// without it a server would be overloaded. It reports the load of each server.
func (s unevenServices) expectLoadBound(ctx context.Context, when string, servers testPods) {
	GinkgoHelper()
	expectEachInItsZone(ctx, when, clusterIPs(s.preferring), servers)
	unbounded := loadOf(ctx, s.preferring, servers)
	expectLoadBoundApplied(ctx, s.bounded, unbounded)
	got := loadOf(ctx, s.bounded, servers)
	AddReportEntry(when, fmt.Sprintf("%s\n%s", unbounded, got))
	Expect(unbounded.busiest()).To(BeNumerically(">", loadBound+unbounded.tolerance()),
		"%s: the load of the busiest server without a load bound, which must be an overload: %s", when, unbounded)
	Expect(got.busiest()).To(BeNumerically("<=", loadBound+got.tolerance()), "%s: the busiest server of %s", when, got)
}

// expectNone makes clients connect to both Services, and expects no reply from the given servers.
func (s unevenServices) expectNone(ctx context.Context, desc string, from, servers testPods) {
	GinkgoHelper()
	connections := 0
	for _, got := range dialAll(ctx, from, s.targets(), dialling{count: sample, timeout: successTimeout}) {
		Expect(got.err).NotTo(HaveOccurred())
		Expect(got.replies()).To(Equal(sample), "%s: connections with a reply: %s", desc, got)
		for _, server := range servers {
			Expect(got.Servers).NotTo(HaveKey(server.name), "%s: servers: %s", desc, got)
		}
		connections += got.replies()
	}
	AddReportEntry(desc, fmt.Sprintf("none of %d new connections goes to %v", connections, servers.names()))
}

// byServer splits open connections into those to the given servers, and others.
func byServer(ctx context.Context, all []held, servers testPods) (with, others []held) {
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

// expectEnded waits until all connections are closed.
func expectEnded(ctx context.Context, desc string, all []held) {
	GinkgoHelper()
	for _, h := range all {
		Eventually(func(g Gomega) {
			got, err := h.state(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Alive).To(BeFalse(), "%s: a connection of %s to %s is open", desc, h.client, got.Server)
		}).WithContext(ctx).Should(Succeed())
	}
}
