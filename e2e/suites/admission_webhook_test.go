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

// The names in manifests/webhook.
const (
	webhookNamespace = "vicinity-system"
	webhookName      = "vicinity-webhook"
)

// needsWebhook labels the specs that need the webhook, installed from manifests/webhook.
const needsWebhook = "webhook"

// webhookPods returns the pods of the webhook, including terminating ones.
func webhookPods(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	found, err := kube.AppsV1().Deployments(webhookNamespace).Get(ctx, webhookName, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	selector := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(found.Spec.Selector)}
	list, err := kube.CoreV1().Pods(webhookNamespace).List(ctx, selector)
	Expect(err).NotTo(HaveOccurred())
	return list.Items
}

// restartWebhook does the same as `kubectl rollout restart`.
func restartWebhook(ctx context.Context) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
		time.Now().Format(time.RFC3339Nano))
	_, err := kube.AppsV1().Deployments(webhookNamespace).Patch(ctx, webhookName, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// replicas is the number of webhook pods in manifests/webhook.
const replicas = 2

// expectGone waits until pods have ended.
func expectGone(ctx context.Context, pods []corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := webhookPods(ctx)
		for _, old := range pods {
			for _, pod := range current {
				g.Expect(pod.UID).NotTo(Equal(old.UID), "pod %s still exists", pod.Name)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// ourWebhooks are the names of the webhooks in the two configurations.
var ourWebhooks = map[string]bool{
	"default.services.vicinity.dev": true, "validate.services.vicinity.dev": true, "validate.namespaces.vicinity.dev": true,
}

// failedOpen returns how many calls to the webhook failed, so that the API server ignored the webhook (failurePolicy
// Ignore). The counter starts with the API server. If there are several API servers, failedOpen reads the counter of
// the one that responds.
func (c cluster) failedOpen(ctx context.Context) float64 {
	GinkgoHelper()
	text, err := c.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	// The counter of failures does not exist before the first failure. The counter of calls exists since the first call.
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

// failOpenLine matches the API server's counter for each webhook that it ignored.
var failOpenLine = regexp.MustCompile(`(?m)^apiserver_admission_webhook_fail_open_count\{name="([^"]*)",type="[^"]*"\} (\S+)$`)

// warnings collects the warnings that a client receives.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// withWarnings returns another client, and a function that returns the warnings in its responses.
func (c cluster) withWarnings() (client kubernetes.Interface, received func() []string) {
	GinkgoHelper()
	config, recorded := rest.CopyConfig(c.config), &warnings{}
	config.WarningHandler = recorded
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client, func() []string {
		recorded.mu.Lock()
		defer recorded.mu.Unlock()
		return recorded.texts
	}
}
