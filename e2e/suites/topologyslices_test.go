//go:build e2e

package suites

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// topologySlices labels the specs for clusters whose webhook publishes TopologySlices.
const topologySlices = "topology-slices"

var _ = Describe("TopologySlices", Label(topologySlices), func() {
	It("describe every node with the labels that Services name", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		row := "rows.vicinity.dev/" + namespace // a key of this spec's own
		labelled := kube.nodes[0]
		labelNode(ctx, labelled, row, new("one"))
		newService(ctx, namespace, topologyKeys(row+", *"))
		Eventually(func(g Gomega) {
			body, err := kube.CoreV1().RESTClient().Get().AbsPath("/apis/vicinity.dev/v1alpha1/topologyslices").DoRaw(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			var list struct {
				Items []struct {
					Nodes []struct {
						Name   string
						Labels map[string]string
					}
				}
			}
			g.Expect(json.Unmarshal(body, &list)).To(Succeed())
			described := map[string]map[string]string{}
			for _, slice := range list.Items {
				for _, on := range slice.Nodes {
					described[on.Name] = on.Labels
				}
			}
			for _, on := range kube.nodes {
				g.Expect(described).To(HaveKey(on.name), "what is published")
				g.Expect(described[on.name]).To(HaveKeyWithValue(corev1.LabelTopologyZone, on.zone), "what is published of %s", on.name)
			}
			g.Expect(described[labelled.name]).To(HaveKeyWithValue(row, "one"), "what is published of %s", labelled.name)
		}).WithContext(ctx).Should(Succeed())
	})
})
