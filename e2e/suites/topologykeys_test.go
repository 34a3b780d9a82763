//go:build e2e

package suites

import (
	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("Topology keys", func() {
	It("keep connections in the zone; with *, only while an endpoint is ready there", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace, topologyKeys(corev1.LabelTopologyZone+", *"))
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

	It("without *, refuse connections only in zones without an endpoint", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace, nodePort, topologyKeys(corev1.LabelTopologyZone))
		targets := clusterIPs(service)
		expectEachInItsZone(ctx, "every zone has an endpoint", targets, servers)
		empty := kube.zones()[0]
		here, elsewhere := servers.inZone(empty), servers.notInZone(empty)
		here[0].setReady(ctx, false)
		expectRefusal(ctx, "the zone is empty", podClients.inZone(empty), targets)
		expectRefusal(ctx, "the zone is empty", nodeClients.inZone(empty), targets)
		for _, n := range kube.inZone(empty) {
			expectRefusal(ctx, "a node port of the empty zone", nodeClients.notInZone(empty)[:1], nodePorts(service, n))
		}
		expectEachInItsZone(ctx, "the other zones", targets, elsewhere)
		here[0].setReady(ctx, true)
		expectEachInItsZone(ctx, "the zone has an endpoint again", targets, servers)
	})

	It("are tried in order: the node, then the zone, then any endpoint", Label(sixNodes), func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		pairs := kube.twoOfEachZone()
		first, second := pairs[0], pairs[1] // of one zone
		servers := kube.startPods(ctx, namespace, serversOn(pairs)...)
		service := newService(ctx, namespace, topologyKeys(corev1.LabelHostname+", "+corev1.LabelTopologyZone+", *"))
		targets, client := clusterIPs(service), podClients.on(first)
		for _, n := range pairs {
			expectServers(ctx, "every node has an endpoint", podClients.on(n), targets, servers.on(n))
		}
		servers.on(first)[0].setReady(ctx, false)
		expectServers(ctx, "none on the node", client, targets, servers.on(second))
		servers.on(second)[0].setReady(ctx, false)
		expectServers(ctx, "none in the zone", client, targets, servers.notInZone(first.zone))
		servers.on(first)[0].setReady(ctx, true)
		expectServers(ctx, "one on the node again", append(client, podClients.on(second)...), targets, servers.on(first))
	})

	It("support any node label, and follow its changes", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		nodes := kube.oneOfEachZone()
		rack := "racks.vicinity.dev/" + namespace // unique to this spec, so that it affects no other
		one, other := nodes[0], nodes[1]
		servers := kube.startPods(ctx, namespace, serversOn(nodes[:2])...)
		service := newService(ctx, namespace, topologyKeys(rack))
		targets := clusterIPs(service)
		mover := nodes[2]
		expectRefusal(ctx, "no node has the label", podClients, targets)
		setLabelForSpec(ctx, one, rack, new("one"))
		setLabelForSpec(ctx, other, rack, new("other"))
		expectServers(ctx, "a client's own rack", podClients.on(one), targets, servers.on(one))
		expectServers(ctx, "a client's own rack", podClients.on(other), targets, servers.on(other))
		expectRefusal(ctx, "a client in no rack", podClients.on(mover), targets)
		setLabelForSpec(ctx, mover, rack, new("one"))
		expectServers(ctx, "the client's node was labelled", podClients.on(mover), targets, servers.on(one))
		setLabel(ctx, mover, rack, new("other"))
		expectServers(ctx, "the client's node moved", podClients.on(mover), targets, servers.on(other))
		setLabel(ctx, other, rack, new("one"))
		expectServers(ctx, "an endpoint's node moved", podClients.on(one, other), targets, servers)
		expectRefusal(ctx, "no endpoint is left in the client's rack", podClients.on(mover), targets)
		changeService(ctx, service, topologyKeys(rack+", *"))
		expectServers(ctx, "any endpoint is allowed", podClients.on(mover), targets, servers)
	})

	It("follow a node whose zone changes", Serial, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		nodes := kube.oneOfEachZone()
		servers := kube.startPods(ctx, namespace, serversOn(nodes[1:])...)
		service := newService(ctx, namespace, topologyKeys(corev1.LabelTopologyZone))
		targets, mover := clusterIPs(service), nodes[0]
		expectRefusal(ctx, "the node's zone is empty", podClients.on(mover), targets)
		for _, to := range nodes[1:] {
			setLabelForSpec(ctx, mover, corev1.LabelTopologyZone, &to.zone)
			expectServers(ctx, "the node moved to "+to.zone, podClients.on(mover), targets, servers.on(to))
		}
		setLabel(ctx, mover, corev1.LabelTopologyZone, nil)
		expectRefusal(ctx, "the node has no zone", podClients.on(mover), targets)
	})
})
