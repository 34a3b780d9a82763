//go:build e2e

package suites

import (
	"cmp"
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
)

// proxyNamespace is Vicinity's namespace in manifests/.
const proxyNamespace = "kube-system"

func proxyDaemonSet() string { return cmp.Or(os.Getenv("PROXY_DAEMONSET"), "vicinity-proxy") }

// expectVicinity waits until Vicinity runs on every node.
func (c cluster) expectVicinity(ctx context.Context) {
	GinkgoHelper()
	c.expectRolledOut(ctx)
	Expect(c.proxyPods(ctx)).NotTo(BeEmpty())
}

// expectRolledOut waits until every pod of the DaemonSet is up to date and ready.
func (c cluster) expectRolledOut(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found, err := c.AppsV1().DaemonSets(proxyNamespace).Get(ctx, proxyDaemonSet(), metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		status := found.Status
		g.Expect(status.ObservedGeneration).To(Equal(found.Generation), "observed generation of the DaemonSet")
		g.Expect(status.DesiredNumberScheduled).To(BeNumerically(">=", len(c.nodes)), "nodes that should run Vicinity: %+v", status)
		g.Expect(status.UpdatedNumberScheduled).To(Equal(status.DesiredNumberScheduled), "nodes that run its newest version: %+v", status)
		g.Expect(status.NumberReady).To(Equal(status.DesiredNumberScheduled), "nodes where it is ready: %+v", status)
	}).WithContext(ctx).Should(Succeed())
}

// proxyPods returns Vicinity's pods.
func (c cluster) proxyPods(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	pods, err := c.findProxyPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	return pods
}

func (c cluster) findProxyPods(ctx context.Context) ([]corev1.Pod, error) {
	found, err := c.AppsV1().DaemonSets(proxyNamespace).Get(ctx, proxyDaemonSet(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := c.CoreV1().Pods(proxyNamespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(found.Spec.Selector)})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// restartProxies deletes all proxy pods at once, with or without a grace period, and waits until their replacements are
// ready.
func (c cluster) restartProxies(ctx context.Context, options metav1.DeleteOptions) {
	GinkgoHelper()
	before := c.proxyPods(ctx)
	for _, pod := range before {
		Expect(c.CoreV1().Pods(proxyNamespace).Delete(ctx, pod.Name, options)).To(Succeed())
	}
	Eventually(func(g Gomega) {
		current := c.proxyPods(ctx)
		for _, old := range before {
			for _, pod := range current {
				g.Expect(pod.UID).NotTo(Equal(old.UID), "pod %s still exists", pod.Name)
			}
		}
		g.Expect(current).To(HaveLen(len(before)))
	}).WithContext(ctx).Should(Succeed())
	c.expectRolledOut(ctx)
}

// withProxyFlags adds flags to every proxy, all at once, for the rest of a spec, which must be Serial.
func (c cluster) withProxyFlags(ctx context.Context, flags ...string) {
	GinkgoHelper()
	var before appsv1.DaemonSetSpec
	c.updateDaemonSet(ctx, func(spec *appsv1.DaemonSetSpec) {
		before = *spec.DeepCopy()
		spec.UpdateStrategy = replaceAllAtOnce()
		container := &spec.Template.Spec.Containers[0]
		container.Args = append(container.Args, flags...)
	})
	DeferCleanup(func(ctx SpecContext) {
		c.updateDaemonSet(ctx, func(spec *appsv1.DaemonSetSpec) { spec.Template = before.Template })
		c.expectRolledOut(ctx)
		c.updateDaemonSet(ctx, func(spec *appsv1.DaemonSetSpec) { spec.UpdateStrategy = before.UpdateStrategy })
	})
	c.expectRolledOut(ctx)
}

// replaceAllAtOnce returns the strategy for specs that wait for every node anyway.
func replaceAllAtOnce() appsv1.DaemonSetUpdateStrategy {
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromString("100%"))},
	}
}

func (c cluster) updateDaemonSet(ctx context.Context, change func(*appsv1.DaemonSetSpec)) {
	GinkgoHelper()
	daemonSets := c.AppsV1().DaemonSets(proxyNamespace)
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := daemonSets.Get(ctx, proxyDaemonSet(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&found.Spec)
		_, err = daemonSets.Update(ctx, found, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
}
