//go:build e2e

package suites

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/status/rollcall"
)

var _ = Describe("The status of a node", func() {
	// Alone, so that no other spec's change is on its way at both looks.
	It("compares its kernel, whatever Services have come and gone, and that of all nodes is a line each", Serial, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		for name, option := range map[string]serviceOption{
			"plain": func(*corev1.Service) {}, "bounded": topologyMode(balanced), "local": internalLocal,
			"sticky": affinity(3600), "node-port": nodePort,
		} {
			newService(ctx, namespace, named(name), option)
		}
		for _, ready := range []bool{false, true} { // slots in another order than at first
			servers[0].setReady(ctx, ready)
		}
		Expect(kube.CoreV1().Services(namespace).Delete(ctx, "local", metav1.DeleteOptions{})).To(Succeed())

		pods := kube.proxyPods(ctx)
		for i := range pods {
			Eventually(func(g Gomega) {
				said, err := kube.exec(ctx, &pods[i], "/proxy", "status")
				g.Expect(err).NotTo(HaveOccurred(), said)
				g.Expect(said).To(And(ContainSubstring("holds what it should"), ContainSubstring("in agreement    since")))
			}).WithContext(ctx).Should(Succeed())
		}
		nodes, err := rollcall.Call(ctx, kube.config, rollcall.Options{
			Namespace: proxyNamespace, Selector: "app.kubernetes.io/name=vicinity-proxy", Port: 10256,
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes).To(HaveLen(len(pods)))
		for _, node := range nodes {
			Expect(node.Agrees).To(BeTrue(), "%+v", node)
		}
	})
})
