//go:build e2e

package suites

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations for the webhook.
const (
	admissionLabel        = "vicinity.dev/admission"
	defaultModeAnnotation = "vicinity.dev/default-topology-mode"
	defaultKeysAnnotation = "vicinity.dev/default-topology-keys"
	defaultDistribution   = "vicinity.dev/default-traffic-distribution"
)

// zoneFirst is a valid list of keys. mistakenKeys has its entries in an order that rule SVC005 denies.
const (
	zoneFirst    = corev1.LabelTopologyZone + ", *"
	mistakenKeys = "*, " + corev1.LabelTopologyZone
)

var _ = Describe("The admission webhook", Label(needsWebhook), func() {
	BeforeEach(func(ctx SpecContext) { expectDeployment(ctx, webhookNamespace, webhookName) })

	It("denies a mistake in a new or updated Service, and reports the cause and the fix", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		services := kube.CoreV1().Services(namespace)
		_, err := services.Create(ctx, webService(topologyKeys(mistakenKeys)), metav1.CreateOptions{})
		expectDenial(err)
		_, err = services.Get(ctx, "web", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "read the denied Service: %v", err)

		service := newService(ctx, namespace, topologyKeys(zoneFirst))
		topologyKeys(mistakenKeys)(service)
		_, err = services.Update(ctx, service, metav1.UpdateOptions{})
		expectDenial(err)
		kept, err := services.Get(ctx, "web", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(kept.Annotations).To(HaveKeyWithValue(keysAnnotation, zoneFirst))
	})

	It("warns about settings that are valid but risky", func(ctx SpecContext) {
		client, warnings := kube.withWarnings()
		namespace := newNamespace(ctx)
		_, err := client.CoreV1().Services(namespace).Create(ctx, webService(topologyKeys(corev1.LabelTopologyZone)), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings()).To(ConsistOf(And(
			HavePrefix("metadata.annotations["+keysAnnotation+"]: "), ContainSubstring(`append ", *"`), HaveSuffix(" [SVC027]"))))
	})

	It("denies a mistake in the defaults of a Namespace", func(ctx SpecContext) {
		err := annotateNamespace(ctx, newNamespace(ctx), defaultModeAnnotation, "auto-ish")
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "response: %v", err)
		Expect(err).To(MatchError(And(ContainSubstring("metadata.annotations["+defaultModeAnnotation+"]: "), ContainSubstring("[NS001]"))))
	})

	for _, inherited := range []struct{ annotation, value string }{
		{defaultKeysAnnotation, zoneFirst}, {defaultDistribution, corev1.ServiceTrafficDistributionPreferSameZone},
	} {
		It("applies a Namespace's "+inherited.annotation+" to its new Services, and the proxy applies the result", func(ctx SpecContext) {
			namespace := newNamespace(ctx)
			older := newService(ctx, namespace, named("older"))
			Expect(annotateNamespace(ctx, namespace, inherited.annotation, inherited.value)).To(Succeed())
			// Starting pods takes long enough for both replicas to receive the annotation.
			servers := kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...)

			service, out := newService(ctx, namespace), newService(ctx, namespace, named("out"), optedOut)
			Expect(settings(service)).To(Equal(inherited.value))
			expectEachInItsZone(ctx, "with the default", clusterIPs(service), servers)
			expectServers(ctx, "opted out", podClients, clusterIPs(out), servers)
			expectServers(ctx, "created before the default", podClients, clusterIPs(older), servers)
			own := newService(ctx, namespace, named("own"), topologyKeys("*"))
			Expect(settings(own)).To(Equal("*"), "a Service with its own setting")
		})
	}

	It("skips a Service with the opt-out label, and a Namespace with it", func(ctx SpecContext) {
		service := newService(ctx, newNamespace(ctx), topologyKeys(mistakenKeys), optedOut)
		Expect(settings(service)).To(Equal(mistakenKeys))
		namespace := newNamespace(ctx, func(namespace *corev1.Namespace) { optOut(&namespace.ObjectMeta) })
		Expect(settings(newService(ctx, namespace, topologyKeys(mistakenKeys)))).To(Equal(mistakenKeys))
	})

	It("misses no request while it is restarted", Serial, func(ctx SpecContext) {
		stream := startDryRunClients(ctx)
		before, failedOpen := webhookPods(ctx), kube.failedOpen(ctx)
		Expect(before).To(HaveLen(replicas))
		restartWebhook(ctx)
		expectDeployment(ctx, webhookNamespace, webhookName)
		expectGone(ctx, before)
		stream.expectMore(ctx, "after the restart", reviewed)

		got := stream.end()
		Expect(got.failed).To(BeEmpty(), "requests that failed: %s", got)
		Expect(got.counts[passed]).To(BeZero(), "requests that the API server decided without the webhook: %s", got)
		Expect(kube.failedOpen(ctx)).To(Equal(failedOpen), "the API server's count of requests decided without the webhook: %s", got)
	})

	It("blocks no request while all replicas are gone, and reviews requests again afterwards", Serial, func(ctx SpecContext) {
		stream := startDryRunClients(ctx)
		before, failedOpen := webhookPods(ctx), kube.failedOpen(ctx)
		Expect(before).To(HaveLen(replicas))
		for _, pod := range before {
			atOnce := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
			Expect(kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, atOnce)).To(Succeed())
		}
		stream.expectMore(ctx, "while all replicas are gone", passed)
		expectGone(ctx, before)
		expectDeployment(ctx, webhookNamespace, webhookName)
		stream.expectMore(ctx, "after all replicas are ready again", reviewed)

		got := stream.end()
		Expect(got.failed).To(BeEmpty(), "requests that failed: %s", got)
		Expect(kube.failedOpen(ctx)).To(BeNumerically(">", failedOpen), "the API server's count of requests decided without the webhook: %s", got)
	})
})

// expectDenial expects the parts of mistakenKeys' denial that users and programs read.
func expectDenial(err error) {
	GinkgoHelper()
	Expect(isDenial(err)).To(BeTrue(), "response: %v", err)
	Expect(err).To(MatchError(And(
		ContainSubstring(`Service "web" is invalid: metadata.annotations[`+keysAnnotation+`]: Invalid value: "*": `),
		ContainSubstring("; move it to the end [SVC005]"),
	)))
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	Expect(found).To(BeTrue(), "response: %v", err)
	Expect(cause.Field).To(Equal("metadata.annotations[" + keysAnnotation + "]"))
}

// settings returns the topology settings of a Service, which has them in one of two forms.
func settings(service *corev1.Service) string {
	if service.Spec.TrafficDistribution != nil {
		return *service.Spec.TrafficDistribution
	}
	return service.Annotations[keysAnnotation]
}

func optedOut(service *corev1.Service) { optOut(&service.ObjectMeta) }

func optOut(object *metav1.ObjectMeta) { metav1.SetMetaDataLabel(object, admissionLabel, "disabled") }

// annotateNamespace adds an annotation to a namespace.
func annotateNamespace(ctx context.Context, name, key, value string) error {
	GinkgoHelper()
	namespace, err := kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, key, value)
	_, err = kube.CoreV1().Namespaces().Update(ctx, namespace, metav1.UpdateOptions{})
	return err
}
