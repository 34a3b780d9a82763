//go:build e2e

package suites

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// drainTime is how long a server keeps serving after SIGTERM. The change must reach every node within that time.
const drainTime = 15 * time.Second

var _ = Describe("A rolling update", func() {
	It("loses no connection", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		makeDeployment(ctx, namespace, 3, 1)
		service := newService(ctx, namespace)
		before := expectRolledOut(ctx, namespace)
		expectServers(ctx, "before", podClients, clusterIPs(service), before)
		clients := startSteady(ctx, podClients, clusterIPs(service))
		updateDeployment(ctx, namespace, `{"template":{"metadata":{"annotations":{"version":"2"}}}}`)
		after := expectRolledOut(ctx, namespace)
		expectServers(ctx, "after", podClients, clusterIPs(service), after)
		total := clients.expectNoneLost("during the update")
		for _, server := range append(before, after...) {
			Expect(total.Servers).To(HaveKey(server.name), "every old and new server replied: %s", total)
		}
	})
})

// makeDeployment creates a Deployment that the scheduler places freely. All of its replicas stay available during an
// update, which first creates surge more.
func makeDeployment(ctx context.Context, namespace string, replicas, surge int32) {
	GinkgoHelper()
	labels := map[string]string{appLabel: "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()}
	serveAfterSIGTERM(&template.Spec, drainTime)
	_, err := kube.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template,
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(surge)),
				},
			},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// updateDeployment patches the Deployment's spec.
func updateDeployment(ctx context.Context, namespace, spec string) {
	GinkgoHelper()
	_, err := kube.AppsV1().Deployments(namespace).Patch(ctx, "web", types.StrategicMergePatchType,
		[]byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// expectRolledOut waits until all pods of the Deployment are up to date, and returns those that are not terminating.
func expectRolledOut(ctx context.Context, namespace string) testPods {
	GinkgoHelper()
	expectDeployment(ctx, namespace, "web")
	list, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: appLabel + "=web"})
	Expect(err).NotTo(HaveOccurred())
	var running testPods
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			running = append(running, kube.testPodOf(&pod))
		}
	}
	return running
}

// expectDeployment waits until all pods of a Deployment are up to date and ready.
func expectDeployment(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found, err := kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(isRolledOut(found)).To(BeTrue(), "all pods are up to date and ready: %+v", found.Status)
	}).WithContext(ctx).Should(Succeed())
}

func isRolledOut(found *appsv1.Deployment) bool {
	status, want := found.Status, *found.Spec.Replicas
	return status.ObservedGeneration == found.Generation &&
		status.Replicas == want && status.UpdatedReplicas == want && status.ReadyReplicas == want
}
