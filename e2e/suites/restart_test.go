//go:build e2e

package suites

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A restart of the proxy on every node", Serial, func() {
	for _, how := range []struct {
		name    string
		options metav1.DeleteOptions
	}{
		{name: "gracefully", options: metav1.DeleteOptions{}},
		{name: "by force", options: metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}},
	} {
		It(how.name+" loses neither open nor new connections, and keeps client affinity", func(ctx SpecContext) {
			namespace := newNamespace(ctx)
			servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
			service, sticky := newService(ctx, namespace, nodePort), newService(ctx, namespace, named("sticky"), affinity(3600))
			targets := clusterIPs(service)
			expectServers(ctx, "before", podClients, targets, servers)
			kept := keptServers(ctx, sticky)
			open := hold(ctx, podClients, targets)
			clients := startSteady(ctx, podClients, append(targets, nodePorts(service, kube.nodes[0])...))
			kube.restartProxies(ctx, how.options)
			expectAlive(ctx, "after the restart", open)
			Expect(keptServers(ctx, sticky)).To(Equal(kept), "each client's server with affinity")
			// A change shows that the restarted proxies are working.
			servers[0].setReady(ctx, false)
			expectServers(ctx, "a change after the restart", podClients, targets, servers[1:])
			clients.expectNoneLost("during the restart")
			expectAlive(ctx, "after the change", open)
		})
	}
})

// keptServers returns the server that each client has affinity to, by the client's name, at the first of a Service's
// ClusterIPs.
func keptServers(ctx context.Context, service *corev1.Service) map[string]string {
	GinkgoHelper()
	serverOf := map[string]string{}
	for _, client := range podClients {
		serverOf[client.name] = expectOneServer(ctx, "kept", client, clusterIPs(service)[0])
	}
	return serverOf
}
