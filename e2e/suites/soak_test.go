//go:build e2e

package suites

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

const (
	// soakLabel labels the specs of "make e2e-soak".
	soakLabel = "soak"
	// soakCuts is the number of power cuts. In each round clients dial for soakBefore before the cut, and for soakAfter
	// after it.
	soakCuts              = 14
	soakBefore, soakAfter = 36 * time.Second, 72 * time.Second
	// plainInterval is the interval at which a client on each node dials the Service with endpoints on all nodes, and
	// soakInterval the interval for each of the other Services. soakTimeout is the timeout of a connection. All clients
	// together dial some 250,000 times.
	plainInterval, soakInterval, soakTimeout = 60 * time.Millisecond, 200 * time.Millisecond, 8 * time.Second
	// ejectionDeadline is the deadline for every proxy to eject the node, once a connection to it is attempted. Nearly
	// always that happens within the first second: a sixth of seventeen connections per second goes there.
	ejectionDeadline = 3500*time.Millisecond + 500*time.Millisecond

	preferZone = "topology.kubernetes.io/zone, *"
)

var _ = Describe("Power cuts for half an hour", Serial, Label(nodePower, soakLabel, thorough), func() {
	It("are detected each time, and fail no connection", func(ctx SpecContext) {
		kube.withProxyFlags(ctx, unreachableModeFlag+"enforce", "--traffic-accounting=services")
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		services := []*corev1.Service{
			newService(ctx, namespace, named("plain")),
			newService(ctx, namespace, named("remembered"), affinity(10800)),
			newService(ctx, namespace, named("near"), topologyKeys(preferZone)),
			newService(ctx, namespace, named("bounded"), topologyKeys(preferZone), withLoadBound),
		}
		expectServers(ctx, "before", podClients, clusterIPs(services[0]), servers)
		DeferCleanup(func(ctx SpecContext) { kube.startNodes(ctx, kube.nodes) })
		var all results
		var late []string
		failedDials := 0
		for cut := range soakCuts {
			dead := kube.nodes[cut%len(kube.nodes)]
			kube.expectAllBaselines(ctx)
			from := podClients.notOn(dead)
			var dialing sync.WaitGroup
			var outcome results
			dialing.Go(func() {
				defer GinkgoRecover()
				outcome = dialFrom(ctx, from, services, soakBefore+soakAfter)
			})
			time.Sleep(soakBefore)
			began := time.Now()
			recordOutage([]node{dead})
			power(ctx, "STOP_NODES", []node{dead})
			stopped := time.Now()
			Eventually(func() []string { return slices.Sorted(maps.Keys(collectedEjections.firstEjections(dead.name, began))) }).
				WithContext(ctx).Should(HaveLen(len(kube.nodes)-1), "proxies that ejected %s", dead.name)
			for by, at := range collectedEjections.firstEjections(dead.name, began) {
				line := fmt.Sprintf("round %d: %s ejected %s %v after the power cut, which took %v", cut+1, by, dead.name, at.Sub(stopped),
					stopped.Sub(began))
				AddReportEntry(line)
				if at.Sub(stopped) > ejectionDeadline {
					late = append(late, line)
				}
			}
			dialing.Wait()
			AddReportEntry(fmt.Sprintf("round %d, %s", cut+1, dead.name), outcome.String())
			all, failedDials = all.plus(outcome), failedDials+outcome.failedDials(stopped)
			kube.deletePodsOn(ctx, []node{dead})
			kube.startNodes(ctx, []node{dead})
			kube.startPods(ctx, namespace, serversOn([]node{dead})...)
		}
		AddReportEntry("connections", fmt.Sprintf("%d of %d failed, and the slowest successful connection took %.1f s", all.failed(),
			all.failed()+all.replies(), all.SlowestMS/1000))
		Expect(failedDials).To(BeZero(), "connections that failed, and were not open before a power cut: %v", all.Failures)
		Expect(late).To(BeEmpty(), "proxies that ejected the node later than after %v", ejectionDeadline)
	})
})

// dialFrom makes clients dial all Services at a constant rate for a while.
func dialFrom(ctx context.Context, clients testPods, services []*corev1.Service, period time.Duration) (all results) {
	GinkgoHelper()
	var mutex sync.Mutex
	var dialing sync.WaitGroup
	for end := time.Now().Add(period - dialDuration/2); time.Now().Before(end); time.Sleep(dialDuration) {
		dialing.Go(func() {
			defer GinkgoRecover()
			outcomes := dialServices(ctx, clients, services, func(service int) dialling {
				interval := soakInterval
				if service == 0 {
					interval = plainInterval
				}
				return dialling{count: int(dialDuration / interval), interval: interval, timeout: soakTimeout, overlap: true}
			})
			mutex.Lock()
			defer mutex.Unlock()
			for _, outcome := range outcomes {
				all = all.plus(outcome)
			}
		})
	}
	dialing.Wait()
	return all
}

// firstEjections returns when each proxy first found a node unreachable after a point in time.
func (l *ejectionLog) firstEjections(node string, from time.Time) map[string]time.Time {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	first := map[string]time.Time{}
	for e := range l.ejections {
		if earliest, isKnown := first[e.observer]; e.node == node && e.at.After(from) && (!isKnown || e.at.Before(earliest)) {
			first[e.observer] = e.at
		}
	}
	return first
}
