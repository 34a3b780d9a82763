//go:build e2e

package suites

import (
	. "github.com/onsi/ginkgo/v2"
)

var _ = Describe("service-proxy-name", func() {
	It("makes Vicinity ignore a Service while it has the label, and no other Service", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes[:1])...)
		service, neighbour := newService(ctx, namespace), newService(ctx, namespace, named("neighbour"))
		born := newService(ctx, namespace, named("born-labelled"), proxyName("another-proxy"))
		expectServers(ctx, "no label", podClients, clusterIPs(service), servers)
		expectTimeout(ctx, "labelled from the start", podClients[:1], clusterIPs(born))
		changeService(ctx, service, proxyName("another-proxy"))
		expectTimeout(ctx, "labelled", podClients[:1], clusterIPs(service))
		expectServers(ctx, "the neighbour has no label", podClients[:1], clusterIPs(neighbour), servers)
		changeService(ctx, service, noProxyName)
		changeService(ctx, born, noProxyName)
		expectServers(ctx, "the label was removed", podClients, append(clusterIPs(service), clusterIPs(born)...), servers)
	})

	It("makes a Vicinity with that name serve the Services with that label, and no others", Serial, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes[:1])...)
		unlabelled := newService(ctx, namespace, named("unlabelled"))
		labelled := newService(ctx, namespace, named("labelled"), proxyName("vicinity"))
		foreign := newService(ctx, namespace, named("foreign"), proxyName("another-proxy"))
		expectServers(ctx, "Vicinity has no name", podClients[:1], clusterIPs(unlabelled), servers)
		kube.withProxyFlags(ctx, "--service-proxy-name=vicinity")
		expectServers(ctx, "its own label", podClients, clusterIPs(labelled), servers)
		expectTimeout(ctx, "another label", podClients[:1], clusterIPs(foreign))
		expectTimeout(ctx, "no label", podClients[:1], clusterIPs(unlabelled))
		changeService(ctx, unlabelled, proxyName("vicinity"))
		expectServers(ctx, "label added", podClients, clusterIPs(unlabelled), servers)
		changeService(ctx, labelled, noProxyName)
		expectTimeout(ctx, "label removed", podClients[:1], clusterIPs(labelled))
	})
})
