//go:build e2e

package suites

import (
	"context"
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/probe/sabotage"
)

var _ = Describe("External changes of the tables", Serial, func() {
	actions := []string{"flush-services", "flush-table", "delete-table"}

	It("are rejected by the kernel if the tables have an owner", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace, nodePort)
		n := kube.nodes[0]
		expectServers(ctx, "before", podClients, clusterIPs(service), servers)
		clients := startSteady(ctx, podClients.on(n), append(clusterIPs(service), nodePorts(service, n)...))
		for _, action := range actions {
			expectOutcome(sabotageOn(ctx, namespace, n, action), sabotage.Rejected)
		}
		clients.expectNoneLost("during the attempts")
		expectServers(ctx, "after", podClients.on(n), clusterIPs(service), servers)
	})

	It("are repaired without a restart if the tables have no owner", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)
		service := newService(ctx, namespace, nodePort)
		n := kube.nodes[0]
		kube.withProxyFlags(ctx, "--own-tables=never")
		expectServers(ctx, "before", podClients, clusterIPs(service), servers)
		restarts := restartsOn(ctx, n)
		for _, action := range actions {
			expectOutcome(sabotageOn(ctx, namespace, n, action), sabotage.Done)
			expectServers(ctx, action, podClients.on(n), clusterIPs(service), servers)
			expectServers(ctx, action, nodeClients.notOn(n)[:1], nodePorts(service, n), servers)
		}
		Expect(restartsOn(ctx, n)).To(Equal(restarts), "restarts of the proxy on %s, by pod", n.name)
	})
})

// expectOutcome checks the outcome of an action, which must be the same for every table.
func expectOutcome(output, outcome string) {
	GinkgoHelper()
	Expect(output).To(ContainSubstring(outcome), "output of probe sabotage")
	for line := range strings.Lines(output) {
		Expect(strings.TrimSpace(line)).To(Or(HaveSuffix(outcome), HaveSuffix(sabotage.Missing)), "output of probe sabotage")
	}
}

// sabotageOn runs `probe sabotage` in a pod with the node's network namespace and the right to change its tables. It
// returns the output.
func sabotageOn(ctx context.Context, namespace string, n node, action string) string {
	GinkgoHelper()
	pod := newPod("saboteur-"+action, n, inNodeNetwork, func(pod *corev1.Pod) {
		container := &pod.Spec.Containers[0]
		container.Args = []string{"sabotage", action}
		container.ReadinessProbe = nil
		container.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	})
	pods := kube.CoreV1().Pods(namespace)
	_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	var ended *corev1.Pod
	Eventually(func(g Gomega) {
		ended, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(ended.Status.Phase).To(BeElementOf(corev1.PodSucceeded, corev1.PodFailed), "probe sabotage: %+v", ended.Status)
	}).WithContext(ctx).Should(Succeed())
	log, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	Expect(err).NotTo(HaveOccurred())
	defer log.Close()
	output, err := io.ReadAll(log)
	Expect(err).NotTo(HaveOccurred())
	Expect(ended.Status.Phase).To(Equal(corev1.PodSucceeded), "output of probe sabotage: %s", output)
	return string(output)
}

// restartsOn returns the restart counts of the proxy on a node, by pod.
func restartsOn(ctx context.Context, n node) map[string]int32 {
	GinkgoHelper()
	restarts := map[string]int32{}
	for _, pod := range kube.proxyPods(ctx) {
		if pod.Spec.NodeName == n.name {
			for _, status := range pod.Status.ContainerStatuses {
				restarts[pod.Name] += status.RestartCount
			}
		}
	}
	return restarts
}
