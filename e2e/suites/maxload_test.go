//go:build e2e

package suites

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxLoadAnnotation bounds the expected load of every endpoint, in percent of the mean.
	maxLoadAnnotation = "vicinity.dev/max-load"
	// balanced is the topology mode with a default load bound.
	balanced = "vicinity.dev/balanced"
	// loadBound is the mode's default, and the bound of these specs, as a multiple of the mean.
	loadBound = 1.2
)

var _ = Describe("A bound of 120 %", func() {
	// An unschedulable node would count for the bound, but has no clients here.
	It("keeps as much in the zone as possible without overload, unlike PreferSameZone", long, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, unevenServers()...)
		preferring := newService(ctx, namespace, named("preferring"), preferSameZone)
		bounded := []*corev1.Service{
			newService(ctx, namespace, named("bounded-preference"), preferSameZone, withLoadBound),
			newService(ctx, namespace, named("bounded-keys"), topologyKeys(corev1.LabelTopologyZone+", *"), withLoadBound),
			newService(ctx, namespace, named("mode"), topologyMode(balanced)),
		}
		expectEachInItsZone(ctx, "PreferSameZone", clusterIPs(preferring), servers)
		alone := loadOf(ctx, preferring, servers)
		AddReportEntry(preferring.Name, alone)
		Expect(alone.busiest()).To(BeNumerically(">", loadBound+alone.tolerance()),
			"the load of the busiest server with PreferSameZone, which must be an overload: %s", alone)
		for _, service := range bounded {
			expectLoadBoundApplied(ctx, service, alone)
			got := loadOf(ctx, service, servers)
			AddReportEntry(service.Name, got)
			Expect(got.busiest()).To(BeNumerically("<=", loadBound+got.tolerance()), "the busiest server of %s", got)
			for _, zone := range kube.zones() {
				Expect(got.nearShare(zone)).To(BeNumerically("~", got.maxNearShare(zone), got.nearShareTolerance(zone)),
					"in-zone share of the connections from %s: %s", zone, got)
			}
		}
	})
})

// unevenServers returns six servers in the zone with the fewest nodes and one in each other zone.
func unevenServers() []*corev1.Pod {
	var pods []*corev1.Pod
	crowded := slices.MinFunc(kube.zones(), func(a, b string) int { return cmp.Compare(len(kube.inZone(a)), len(kube.inZone(b))) })
	for _, zone := range kube.zones() {
		count, nodes := 1, kube.inZone(zone)
		if zone == crowded {
			count = 6
		}
		for number := range count {
			pods = append(pods, newPod(fmt.Sprintf("web-%s-%d", zone, number), nodes[number%len(nodes)], selected))
		}
	}
	return pods
}

func preferSameZone(service *corev1.Service) {
	trafficDistribution(corev1.ServiceTrafficDistributionPreferSameZone)(service)
}

// withLoadBound sets the annotation to the bound.
func withLoadBound(service *corev1.Service) {
	metav1.SetMetaDataAnnotation(&service.ObjectMeta, maxLoadAnnotation, fmt.Sprintf("%g%%", 100*loadBound))
}

// expectLoadBoundApplied waits until the bound is applied on every node: connections leave the zones without enough
// capacity for them, and no others.
func expectLoadBoundApplied(ctx context.Context, service *corev1.Service, want load) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, got := range dialAll(ctx, podClients, clusterIPs(service), dialling{count: sample, timeout: successTimeout}) {
			g.Expect(got.err).NotTo(HaveOccurred())
			zone := got.client.node.zone
			near := load{servers: want.servers, from: map[string]results{zone: got.results}}.nearShare(zone)
			g.Expect(near == 1).To(Equal(want.maxNearShare(zone) == 1), "whether all connections stay: %s", got)
		}
	}).WithContext(ctx).Should(Succeed())
}

// load counts the connections that each server of a Service got, where each node made the same number.
type load struct {
	service string
	servers testPods
	from    map[string]results // by the clients' zone
}

// loadOf makes a pod on every node connect to all ClusterIPs of a Service.
func loadOf(ctx context.Context, service *corev1.Service, servers testPods) load {
	GinkgoHelper()
	const count = 300 // to each family
	// The measurement is about where connections go, and not about latency on a busy machine.
	const timeout = time.Minute
	measured := load{service: service.Name, servers: servers, from: map[string]results{}}
	for _, got := range dialAll(ctx, podClients, clusterIPs(service), dialling{count: count, timeout: timeout}) {
		Expect(got.err).NotTo(HaveOccurred())
		Expect(got.replies()).To(Equal(count), "connections with a reply: %s", got)
		zone := got.client.node.zone
		measured.from[zone] = measured.from[zone].plus(got.results)
	}
	return measured
}

func (l load) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: busiest %.2f times the mean;", l.service, l.busiest())
	for _, zone := range kube.zones() {
		fmt.Fprintf(&text, " %s: %.1f %% stay, its servers got", zone, 100*l.nearShare(zone))
		for _, server := range l.servers.inZone(zone) {
			fmt.Fprintf(&text, " %.2f", l.relativeLoad(server))
		}
		text.WriteString(";")
	}
	return strings.TrimSuffix(text.String(), ";")
}

// mean returns the mean load of the servers.
func (l load) mean() float64 {
	total := 0
	for _, got := range l.from {
		total += got.replies()
	}
	return float64(total) / float64(len(l.servers))
}

// relativeLoad returns a server's load as a multiple of the mean.
func (l load) relativeLoad(server testPod) float64 {
	count := 0
	for _, got := range l.from {
		count += got.Servers[server.name]
	}
	return float64(count) / l.mean()
}

// busiest returns the highest load as a multiple of the mean.
func (l load) busiest() float64 {
	most := 0.0
	for _, server := range l.servers {
		most = max(most, l.relativeLoad(server))
	}
	return most
}

// nearShare returns the in-zone share of a zone's connections.
func (l load) nearShare(zone string) float64 {
	near := 0
	for _, server := range l.servers.inZone(zone) {
		near += l.from[zone].Servers[server.name]
	}
	return float64(near) / float64(l.from[zone].replies())
}

// nearCapacity returns the number of connections that a zone's servers may get.
func (l load) nearCapacity(zone string) float64 {
	return loadBound * l.mean() * float64(len(l.servers.inZone(zone)))
}

// maxNearShare returns the share of a zone's connections that the zone's servers may get.
func (l load) maxNearShare(zone string) float64 {
	return min(1, l.nearCapacity(zone)/float64(l.from[zone].replies()))
}

const (
	// deviations is the tolerance of a count in standard deviations. Chance exceeds it once in three million counts.
	deviations = 5
	// rounding is the relative tolerance of an endpoint's expected load, because shares are rounded to slots.
	rounding = 0.03
)

// tolerance returns by how much a server may exceed the bound, as a multiple of the mean.
func (l load) tolerance() float64 {
	return loadBound*rounding + deviations*math.Sqrt(loadBound/l.mean())
}

// nearShareTolerance returns the tolerance of the in-zone share; it is zero where all connections may stay.
func (l load) nearShareTolerance(zone string) float64 {
	leaves := 1 - l.maxNearShare(zone)
	return leaves*rounding + deviations*math.Sqrt(l.maxNearShare(zone)*leaves/float64(l.from[zone].replies()))
}
