//go:build e2e

package suites

import (
	"context"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// nodePower labels the specs that stop and start nodes. Kubernetes cannot do that: $STOP_NODES and $START_NODES are the
// commands for it, to which the names of nodes are appended.
const nodePower = "node-power"

// power runs one of the two commands.
func power(ctx context.Context, variable string, nodes []node) {
	GinkgoHelper()
	words := strings.Fields(os.Getenv(variable))
	Expect(words).NotTo(BeEmpty(), "$%s is not set; if nodes cannot be stopped, skip this spec with LABEL_FILTER='!%s'", variable, nodePower)
	for _, n := range nodes {
		words = append(words, n.name)
	}
	output, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s: %s", strings.Join(words, " "), output)
}

// stopNodes stops nodes. They are started again at the end of the spec at the latest.
func (c cluster) stopNodes(ctx context.Context, nodes []node) {
	GinkgoHelper()
	DeferCleanup(func(ctx SpecContext) { c.startNodes(ctx, nodes) })
	recordOutage(nodes)
	power(ctx, "STOP_NODES", nodes)
}

// deleteNodes deletes the Nodes of stopped machines, as the cloud controller manager does after a while.
func (c cluster) deleteNodes(ctx context.Context, nodes []node) {
	GinkgoHelper()
	for _, n := range nodes {
		Expect(c.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{})).To(Succeed(), "node %s", n.name)
	}
}

// deletePodsOn deletes the pods of stopped machines, as the pod garbage collector does after a while.
func (c cluster) deletePodsOn(ctx context.Context, nodes []node) {
	GinkgoHelper()
	for _, n := range nodes {
		for _, pod := range c.podsOn(ctx, n) {
			err := c.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, withoutGrace())
			if !apierrors.IsNotFound(err) { // the garbage collector may have been faster
				Expect(err).NotTo(HaveOccurred(), "pod %s/%s", pod.Namespace, pod.Name)
			}
		}
	}
}

// withoutGrace deletes a pod immediately, because no kubelet may be running to end it.
func withoutGrace() metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
}

func (c cluster) podsOn(ctx context.Context, n node) []corev1.Pod {
	GinkgoHelper()
	list, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.name).String(),
	})
	Expect(err).NotTo(HaveOccurred())
	return list.Items
}

// startNodes starts nodes and waits until they are schedulable and Vicinity runs on them. It also starts their clients
// again.
func (c cluster) startNodes(ctx context.Context, nodes []node) {
	GinkgoHelper()
	power(ctx, "START_NODES", nodes)
	for _, n := range nodes {
		Eventually(func(g Gomega) {
			found, err := c.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(isSchedulable(found)).To(BeTrue(), "node %s takes pods: %+v", n.name, found.Status.Conditions)
		}).WithContext(ctx).Should(Succeed())
	}
	c.expectVicinity(ctx)
	recordReturn(nodes)
	namespace := podClients[0].namespace
	var missing []*corev1.Pod
	for _, client := range clientPods(nodes) {
		if _, err := c.CoreV1().Pods(namespace).Get(ctx, client.Name, metav1.GetOptions{}); err != nil {
			missing = append(missing, client)
		}
	}
	c.startPods(ctx, namespace, missing...)
	podClients, nodeClients = c.clients(ctx, namespace)
}
