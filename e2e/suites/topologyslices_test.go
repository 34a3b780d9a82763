//go:build e2e

package suites

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// topologySlices labels the specs for clusters whose webhook publishes TopologySlices.
const topologySlices = "topology-slices"

var _ = Describe("TopologySlices", Label(topologySlices), func() {
	It("list every node with the labels that Services use", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		row := "rows.vicinity.dev/" + namespace // a key that only this spec uses
		labelled := kube.nodes[0]
		setLabelForSpec(ctx, labelled, row, new("one"))
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
				for _, n := range slice.Nodes {
					described[n.Name] = n.Labels
				}
			}
			for _, n := range kube.nodes {
				g.Expect(described).To(HaveKey(n.name), "published nodes")
				g.Expect(described[n.name]).To(HaveKeyWithValue(corev1.LabelTopologyZone, n.zone), "published labels of %s", n.name)
			}
			g.Expect(described[labelled.name]).To(HaveKeyWithValue(row, "one"), "published labels of %s", labelled.name)
		}).WithContext(ctx).Should(Succeed())
	})

	It("propagate a label change to another node's kernel in seconds", Serial, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		row := "rows.vicinity.dev/" + namespace
		here, there, elsewhere := kube.nodes[0], kube.nodes[1], kube.nodes[2]
		servers := kube.startPods(ctx, namespace, serversOn([]node{there, elsewhere})...)
		service := newService(ctx, namespace, topologyKeys(row+", *"))
		client, to := podClients.on(here), clusterIPs(service)[:1]
		setLabelForSpec(ctx, here, row, new("one"))
		setLabelForSpec(ctx, there, row, nil) // removed after the spec
		expectServers(ctx, "no other node of the row", client, to, servers)
		var took []time.Duration
		for range 10 {
			setLabel(ctx, there, row, new("one"))
			began := time.Now()
			expectServers(ctx, "one node of the row", client, to, servers.on(there))
			took = append(took, time.Since(began))
			setLabel(ctx, there, row, nil)
			began = time.Now()
			expectServers(ctx, "none again", client, to, servers)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		AddReportEntry("delay from a label change to connections to other nodes", fmt.Sprintf("median %s, slowest %s of %d, including dialling",
			took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took)))
	})
})
