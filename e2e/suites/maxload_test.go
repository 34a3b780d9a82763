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
	// maxLoadAnnotation bounds what any endpoint may expect, in percent of the mean.
	maxLoadAnnotation = "vicinity.dev/max-load"
	// balanced is the topology mode that does so without more words.
	balanced = "vicinity.dev/balanced"
	// bound is the mode's, and that of these specs, in times the mean.
	bound = 1.2
)

var _ = Describe("A bound of 120 %", func() {
	// A node that takes no pods would count for the bound, and dials nothing here.
	It("keeps as much in the zone as overloads nobody, beside PreferSameZone, which does", long, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, unevenServers()...)
		preferring := newService(ctx, namespace, named("preferring"), preferSameZone)
		bounded := []*corev1.Service{
			newService(ctx, namespace, named("bounded-preference"), preferSameZone, withinBound),
			newService(ctx, namespace, named("bounded-keys"), topologyKeys(corev1.LabelTopologyZone+", *"), withinBound),
			newService(ctx, namespace, named("mode"), topologyMode(balanced)),
		}
		expectEachInItsZone(ctx, "PreferSameZone", clusterIPs(preferring), servers)
		alone := loadOf(ctx, preferring, servers)
		AddReportEntry(preferring.Name, alone)
		Expect(alone.busiest()).To(BeNumerically(">", bound+alone.noise()), "PreferSameZone overloads nobody, and nothing is shown: %s", alone)
		for _, service := range bounded {
			expectBound(ctx, service, alone)
			got := loadOf(ctx, service, servers)
			AddReportEntry(service.Name, got)
			Expect(got.busiest()).To(BeNumerically("<=", bound+got.noise()), "the busiest server of %s", got)
			for _, zone := range kube.zones() {
				Expect(got.stayed(zone)).To(BeNumerically("~", got.mayStay(zone), got.noiseOfStayed(zone)),
					"which part of the connections from %s stays there: %s", zone, got)
			}
		}
	})
})

// unevenServers are six in the zone with the fewest nodes and one in each other.
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

// withinBound sets the annotation to the bound.
func withinBound(service *corev1.Service) {
	metav1.SetMetaDataAnnotation(&service.ObjectMeta, maxLoadAnnotation, fmt.Sprintf("%g%%", 100*bound))
}

// expectBound waits until the bound is in force on every node: connections leave the zones that have not enough room
// for theirs, and no others.
func expectBound(ctx context.Context, service *corev1.Service, wanted load) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, got := range dialAll(ctx, podClients, clusterIPs(service), dialling{count: sample, timeout: patient}) {
			g.Expect(got.err).NotTo(HaveOccurred())
			zone := got.client.node.zone
			near := load{servers: wanted.servers, from: map[string]results{zone: got.results}}.stayed(zone)
			g.Expect(near == 1).To(Equal(wanted.mayStay(zone) == 1), "whether all connections stay: %s", got)
		}
	}).WithContext(ctx).Should(Succeed())
}

// load is what each of a Service's servers got of connections of which each node made as many.
type load struct {
	service string
	servers probes
	from    map[string]results // by the clients' zone
}

// loadOf has a pod on every node connect to all ClusterIPs of a Service.
func loadOf(ctx context.Context, service *corev1.Service, servers probes) load {
	GinkgoHelper()
	const each = 300 // to each family
	// What is measured is where connections go, and not how long they take on a busy machine.
	const longest = time.Minute
	measured := load{service: service.Name, servers: servers, from: map[string]results{}}
	for _, got := range dialAll(ctx, podClients, clusterIPs(service), dialling{count: each, timeout: longest}) {
		Expect(got.err).NotTo(HaveOccurred())
		Expect(got.replies()).To(Equal(each), "connections that are answered: %s", got)
		zone := got.client.node.zone
		measured.from[zone] = measured.from[zone].plus(got.results)
	}
	return measured
}

func (l load) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: busiest %.2f times the mean;", l.service, l.busiest())
	for _, zone := range kube.zones() {
		fmt.Fprintf(&text, " %s: %.1f %% stay, its servers got", zone, 100*l.stayed(zone))
		for _, server := range l.servers.inZone(zone) {
			fmt.Fprintf(&text, " %.2f", l.times(server))
		}
		text.WriteString(";")
	}
	return strings.TrimSuffix(text.String(), ";")
}

// mean is what a server would get if all got as much.
func (l load) mean() float64 {
	total := 0
	for _, got := range l.from {
		total += got.replies()
	}
	return float64(total) / float64(len(l.servers))
}

// times is what a server got, in times the mean.
func (l load) times(server probe) float64 {
	count := 0
	for _, got := range l.from {
		count += got.Servers[server.name]
	}
	return float64(count) / l.mean()
}

// busiest is the most that a server got, in times the mean.
func (l load) busiest() float64 {
	most := 0.0
	for _, server := range l.servers {
		most = max(most, l.times(server))
	}
	return most
}

// stayed is which part of a zone's connections stayed there.
func (l load) stayed(zone string) float64 {
	near := 0
	for _, server := range l.servers.inZone(zone) {
		near += l.from[zone].Servers[server.name]
	}
	return float64(near) / float64(l.from[zone].replies())
}

// room is how many connections a zone's servers may get.
func (l load) room(zone string) float64 {
	return bound * l.mean() * float64(len(l.servers.inZone(zone)))
}

// mayStay is which part of a zone's connections there is room for in the zone.
func (l load) mayStay(zone string) float64 {
	return min(1, l.room(zone)/float64(l.from[zone].replies()))
}

const (
	// deviations is by how many standard deviations a count may be off. Chance exceeds that once in three million
	// counts.
	deviations = 5
	// rounding is by which part of itself what an endpoint expects may be off, because shares become whole slots.
	rounding = 0.03
)

// noise is by how much a server may exceed the bound, in times the mean.
func (l load) noise() float64 { return bound*rounding + deviations*math.Sqrt(bound/l.mean()) }

// noiseOfStayed is by how much the part that stays may be off; nothing where all may stay.
func (l load) noiseOfStayed(zone string) float64 {
	leaves := 1 - l.mayStay(zone)
	return leaves*rounding + deviations*math.Sqrt(l.mayStay(zone)*leaves/float64(l.from[zone].replies()))
}
