//go:build e2e

package suites

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// labelNode sets a label on a node, or removes it if value is nil. After the spec it restores the previous value.
func labelNode(ctx context.Context, on node, key string, value *string) {
	GinkgoHelper()
	found, err := kube.CoreV1().Nodes().Get(ctx, on.name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	var before *string
	if previous, ok := found.Labels[key]; ok {
		before = &previous
	}
	DeferCleanup(func(ctx SpecContext) { patchLabel(ctx, on, key, before) })
	patchLabel(ctx, on, key, value)
}

func patchLabel(ctx context.Context, on node, key string, value *string) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
	Expect(err).NotTo(HaveOccurred())
	_, err = kube.CoreV1().Nodes().Patch(ctx, on.name, types.MergePatchType, patch, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}
