//go:build e2e

package suites

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// measuredDemand labels the specs for clusters whose webhook measures demand.
const measuredDemand = "measured-demand"

var _ = Describe("A bound that is planned for measured demand", Label(measuredDemand), func() {
	It("holds while nine of ten connections come from one zone", longestFirst, func(ctx SpecContext) {
		startLoad(ctx).expectBound(ctx, "with measured demand")
	})

	It("survives the loss of the publisher", Serial, Label(thorough), func(ctx SpecContext) {
		c := startLoad(ctx)
		c.expectBound(ctx, "with measured demand")
		before, leader := c.published(ctx), holderOf(ctx, "vicinity-demand-publisher")
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		Expect(kube.CoreV1().Pods(webhookNamespace).Delete(ctx, leader, now)).To(Succeed())
		Eventually(func() string {
			c.dial(ctx)
			return holderOf(ctx, "vicinity-demand")
		}).WithContext(ctx).ShouldNot(Equal(leader), "holder of the Lease vicinity-demand")
		c.expectBound(ctx, "with another publisher")
		Expect(c.published(ctx).Metadata.UID).To(Equal(before.Metadata.UID), "UID of the ServiceDemand")
	})
})

// loadGenerator makes connections to a Service with a load bound. Nine of ten connections come from one zone.
type loadGenerator struct {
	service *corev1.Service
	servers testPods
	zone    string
}

// startLoad makes many clients overload the servers in its zone, and then enables measured demand.
func startLoad(ctx context.Context) *loadGenerator {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	c := &loadGenerator{servers: kube.startPods(ctx, namespace, serversOn(kube.oneOfEachZone())...), zone: kube.zones()[0]}
	c.service = newService(ctx, namespace, topologyKeys(corev1.LabelTopologyZone+", *"), withLoadBound)
	expectServers(ctx, "before", podClients.inZone(c.zone), clusterIPs(c.service)[:1], c.servers.inZone(c.zone))
	unbounded := c.dial(ctx)
	Expect(unbounded.busiest()).To(BeNumerically(">", loadBound+unbounded.tolerance()),
		"the load of the busiest server without measured demand, which must be an overload: %s", unbounded)
	c.service = changeService(ctx, c.service, func(service *corev1.Service) {
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, "vicinity.dev/demand-source", "measured")
	})
	return c
}

// dial makes a few hundred connections in a few seconds, and returns the load of each server. All connections must
// succeed.
func (l *loadGenerator) dial(ctx context.Context) load {
	GinkgoHelper()
	const duration, perClient = 4 * time.Second, 10 // connections of a client in another zone
	near, far := podClients.inZone(l.zone), podClients.notInZone(l.zone)
	counts := map[int]testPods{perClient: far, 9 * perClient * len(far) / len(near): near}
	got := load{service: l.service.Name, servers: l.servers, from: map[string]results{}}
	var mutex sync.Mutex
	var dialing sync.WaitGroup
	for count, clients := range counts {
		dialing.Go(func() {
			defer GinkgoRecover()
			how := dialling{count: count, timeout: successTimeout, interval: duration / time.Duration(count), overlap: true}
			for _, outcome := range dialTogether(ctx, clients, clusterIPs(l.service)[:1], how) {
				Expect(outcome.err).NotTo(HaveOccurred())
				Expect(outcome.replies()).To(Equal(count), "connections with a reply: %s", outcome)
				mutex.Lock()
				got.from[outcome.client.node.zone] = got.from[outcome.client.node.zone].plus(outcome.results)
				mutex.Unlock()
			}
		})
	}
	dialing.Wait()
	return got
}

// expectBound dials until no server exceeds the bound in the most recent connections, about a thousand.
func (l *loadGenerator) expectBound(ctx context.Context, desc string) {
	GinkgoHelper()
	const windowSize = 5
	var window []load
	var got load
	Eventually(func(g Gomega) {
		window = append(window, l.dial(ctx))
		window = window[max(0, len(window)-windowSize):]
		g.Expect(window).To(HaveLen(windowSize))
		got = load{service: l.service.Name, servers: l.servers, from: map[string]results{}}
		for _, measured := range window {
			for zone, counts := range measured.from {
				got.from[zone] = got.from[zone].plus(counts)
			}
		}
		g.Expect(got.busiest()).To(BeNumerically("<=", loadBound+got.tolerance()), "the busiest server, %s: %s", desc, got)
	}).WithContext(ctx).WithTimeout(2 * waitTimeout).Should(Succeed())
	AddReportEntry(desc, got)
	Expect(l.published(ctx).demandOf(l.zone)).To(BeNumerically(">", 800_000), "the zone's published demand in ppm")
}

// publishedDemand is a ServiceDemand.
type publishedDemand struct {
	Metadata struct{ UID types.UID }
	Zones    []struct {
		Zone string
		Asks int `json:"demandPPM"`
	}
}

func (l *loadGenerator) published(ctx context.Context) (d publishedDemand) {
	GinkgoHelper()
	body, err := kube.CoreV1().RESTClient().Get().
		AbsPath("/apis/vicinity.dev/v1alpha1/namespaces", l.service.Namespace, "servicedemands", l.service.Name).DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred(), "the ServiceDemand: %s", body)
	Expect(json.Unmarshal(body, &d)).To(Succeed())
	return d
}

func (d publishedDemand) demandOf(zone string) int {
	for _, z := range d.Zones {
		if z.Zone == zone {
			return z.Asks
		}
	}
	return 0
}

// holderOf returns the holder of one of the webhook's Leases.
func holderOf(ctx context.Context, lease string) string {
	GinkgoHelper()
	found, err := kube.CoordinationV1().Leases(webhookNamespace).Get(ctx, lease, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(found.Spec.HolderIdentity).NotTo(BeNil())
	return *found.Spec.HolderIdentity
}
