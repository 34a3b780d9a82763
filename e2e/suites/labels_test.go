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

// setLabelForSpec sets a label like setLabel, and restores the previous value after the spec.
func setLabelForSpec(ctx context.Context, n node, key string, value *string) {
	GinkgoHelper()
	found, err := kube.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	var before *string
	if previous, ok := found.Labels[key]; ok {
		before = &previous
	}
	DeferCleanup(func(ctx SpecContext) { setLabel(ctx, n, key, before) })
	setLabel(ctx, n, key, value)
}

// setLabel sets a label on a node, or removes it if value is nil.
func setLabel(ctx context.Context, n node, key string, value *string) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
	Expect(err).NotTo(HaveOccurred())
	_, err = kube.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}
