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

// currentNamespace is the namespace of the spec that runs in this process. It is described if the spec fails.
var currentNamespace string

// newNamespace creates a namespace for a spec and deletes it with the spec.
func newNamespace(ctx context.Context, options ...namespaceOption) string {
	GinkgoHelper()
	currentNamespace = kube.makeNamespace(ctx, "vicinity-spec-", options...)
	DeferCleanup(kube.deleteNamespace, currentNamespace)
	return currentNamespace
}

type namespaceOption func(*corev1.Namespace)

func (c cluster) makeNamespace(ctx context.Context, prefix string, options ...namespaceOption) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: prefix,
		// Clients with host networking, and a pod that may change the node's tables, need the privileged Pod Security level.
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}}
	for _, option := range options {
		option(namespace)
	}
	created, err := c.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return created.Name
}

// deleteNamespace deletes the namespace and, without a grace period, its pods. It does not wait for the deletion,
// because names are never reused.
func (c cluster) deleteNamespace(ctx SpecContext, name string) {
	GinkgoHelper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	Expect(c.CoreV1().Pods(name).DeleteCollection(ctx, now, metav1.ListOptions{})).To(Succeed())
	err := c.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}
