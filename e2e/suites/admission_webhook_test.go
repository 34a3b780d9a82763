//go:build e2e

package suites

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Where manifests/webhook puts the webhook.
const (
	webhookNamespace = "vicinity-system"
	webhookName      = "vicinity-webhook"
)

// needsWebhook labels the specs that need the webhook, as manifests/webhook installs it.
const needsWebhook = "webhook"

// webhookPods returns the pods of the webhook, also those that are about to end.
func webhookPods(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	found, err := kube.AppsV1().Deployments(webhookNamespace).Get(ctx, webhookName, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	selector := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(found.Spec.Selector)}
	list, err := kube.CoreV1().Pods(webhookNamespace).List(ctx, selector)
	Expect(err).NotTo(HaveOccurred())
	return list.Items
}

// restartWebhook does what `kubectl rollout restart` does.
func restartWebhook(ctx context.Context) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
		time.Now().Format(time.RFC3339Nano))
	_, err := kube.AppsV1().Deployments(webhookNamespace).Patch(ctx, webhookName, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// replicas is how many pods of the webhook manifests/webhook has.
const replicas = 2

// expectGone waits until pods have ended.
func expectGone(ctx context.Context, pods []corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := webhookPods(ctx)
		for _, old := range pods {
			for _, pod := range now {
				g.Expect(pod.UID).NotTo(Equal(old.UID), "pod %s still exists", pod.Name)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// ourWebhooks are the names in the two configurations.
var ourWebhooks = map[string]bool{
	"default.services.vicinity.dev": true, "validate.services.vicinity.dev": true, "validate.namespaces.vicinity.dev": true,
}

// failedOpen is how many calls to the webhook failed, after which the API server went on without it, as failurePolicy
// Ignore says. It has counted them since it began. Of several API servers it is the one that answers.
func (c cluster) failedOpen(ctx context.Context) float64 {
	GinkgoHelper()
	text, err := c.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	// Nothing is counted as failed before the first failure; calls are, since the first call.
	Expect(string(text)).To(ContainSubstring("\napiserver_admission_webhook_request_total{"), "the API server's metrics")
	total := 0.0
	for _, found := range failOpenLine.FindAllStringSubmatch(string(text), -1) {
		if ourWebhooks[found[1]] {
			count, err := strconv.ParseFloat(found[2], 64)
			Expect(err).NotTo(HaveOccurred())
			total += count
		}
	}
	return total
}

// failOpenLine is what the API server's metrics have for each webhook that it went on without.
var failOpenLine = regexp.MustCompile(`(?m)^apiserver_admission_webhook_fail_open_count\{name="([^"]*)",type="[^"]*"\} (\S+)$`)

// warnings keeps what a client is warned of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// withWarnings returns another client, and a function that returns the warnings in its answers.
func (c cluster) withWarnings() (client kubernetes.Interface, heard func() []string) {
	GinkgoHelper()
	config, kept := rest.CopyConfig(c.config), &warnings{}
	config.WarningHandler = kept
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client, func() []string {
		kept.mu.Lock()
		defer kept.mu.Unlock()
		return kept.texts
	}
}
