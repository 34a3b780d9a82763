//go:build e2e

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
)

const (
	// Each client dials every dialInterval for dialDuration, from the time at which nodes lose power. Kubernetes takes
	// longer than dialDuration to detect the loss.
	dialInterval = 40 * time.Millisecond
	dialDuration = 12 * time.Second
	dialCount    = int(dialDuration / dialInterval)
)

// unreachableModeFlag is the flag that determines how proxies handle unreachable nodes.
const unreachableModeFlag = "--unreachable-node-mode="

// "make e2e-power-loss" runs the specs labelled powerLossLabel, with kube-proxy running next to Vicinity. "make e2e"
// excludes those labelled thorough: each of these specs takes most of a minute, and they count single connections.
// While other tests ran, at a load of 38, two of 1,200 connections waited longer than ten seconds.
const (
	powerLossLabel = "power-loss"
	thorough       = "thorough"
)

var _ = Describe("A loss of power", Serial, Label(nodePower, powerLossLabel, thorough), func() {
	oneNode := func() []node { return kube.inZone(kube.zones()[1])[:1] }
	zone := func() []node { return kube.inZone(kube.zones()[1]) }

	It("of a zone fails no connection, long before Kubernetes detects it", func(ctx SpecContext) {
		losePower(ctx, "enforce", zone()).expectNoneFailed()
	})

	It("of a node fails no connection, long before Kubernetes detects it", func(ctx SpecContext) {
		losePower(ctx, "enforce", oneNode()).expectNoneFailed()
	})

	It("of a zone fails the connections to it if proxies ignore unreachable nodes", func(ctx SpecContext) {
		lost := losePower(ctx, "off", zone())
		Expect(lost.vicinity).To(loseMany())
	})
})

// powerLoss has the results of connections that were started while nodes lost power, by the proxy that served them.
type powerLoss struct {
	vicinity, other results
	cut             time.Time // when the nodes had lost power
}

// losePower stops nodes while clients on all other nodes dial Services with endpoints on all nodes. If another proxy
// runs, it serves one of the Services. IPv6 is not dialled: if all nodes are on one link, neighbour discovery in the
// kernel fails after three seconds, and the client gets an error that no proxy can prevent.
func losePower(ctx context.Context, mode string, nodes []node) powerLoss {
	GinkgoHelper()
	kube.withProxyFlags(ctx, unreachableModeFlag+mode)
	namespace := newNamespace(ctx)
	servers := kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
	var services []*corev1.Service
	if name, hasOther := kube.proxyName(ctx); hasOther {
		services = append(services, newService(ctx, namespace, named("vicinity"), proxyName(name)), newService(ctx, namespace, named("other")))
	} else {
		services = append(services, newService(ctx, namespace, named("vicinity")))
	}
	clients := podClients.notOn(nodes...)
	for _, service := range services {
		expectServers(ctx, "before", clients, clusterIPs(service), servers)
	}
	if mode != "off" {
		kube.expectAllBaselines(ctx)
	}
	var loss powerLoss
	var dialing sync.WaitGroup
	dialing.Go(func() {
		defer GinkgoRecover()
		outcomes := dialServices(ctx, clients, services, func(int) dialling {
			return dialling{count: dialCount, interval: dialInterval, timeout: successTimeout, overlap: true}
		})
		if loss.vicinity = outcomes[0]; len(outcomes) > 1 {
			loss.other = outcomes[1]
		}
	})
	kube.stopNodes(ctx, nodes)
	loss.cut = time.Now()
	dialing.Wait()
	AddReportEntry("connections", loss.String())
	return loss
}

// dialServices makes each client dial each Service, whose index determines how, and returns the results by Service.
func dialServices(ctx context.Context, clients testPods, services []*corev1.Service, how func(service int) dialling) []results {
	GinkgoHelper()
	var mutex sync.Mutex
	var dialing sync.WaitGroup
	outcomes := make([]results, len(services))
	for i, service := range services {
		for _, client := range clients {
			dialing.Go(func() {
				defer GinkgoRecover()
				outcome, err := client.dial(ctx, clusterIPs(service)[0], how(i))
				Expect(err).NotTo(HaveOccurred())
				mutex.Lock()
				defer mutex.Unlock()
				outcomes[i] = outcomes[i].plus(outcome)
			})
		}
	}
	dialing.Wait()
	return outcomes
}

func (l powerLoss) String() string {
	describe := func(r results) string {
		return fmt.Sprintf("%d of %d connections failed, and the slowest successful connection took %.1f s",
			r.failed(), r.failed()+r.replies(), r.SlowestMS/1000)
	}
	if l.other.Servers == nil {
		return describe(l.vicinity)
	}
	return describe(l.vicinity) + "; with the other proxy " + describe(l.other)
}

func (l powerLoss) expectNoneFailed() {
	GinkgoHelper()
	Expect(l.vicinity.failedDials(l.cut)).To(BeZero(), "connections that failed, and were not open before the power cut: %s", l.vicinity)
	Expect(l.vicinity.SlowestMS).To(BeNumerically(">", 900),
		"the slowest connection in ms, one of which must have waited for a dead node: %s", l.vicinity)
	if l.other.Servers != nil {
		Expect(l.other).To(loseMany())
	}
}

// loseMany matches results of which more than an eighth failed: the dead nodes have at least a sixth of the endpoints.
func loseMany() types.GomegaMatcher {
	return WithTransform(func(r results) int { return r.failed()*8 - r.failed() - r.replies() }, BeNumerically(">", 0))
}

// expectAllBaselines waits until each proxy has a baseline for every other node.
func (c cluster) expectAllBaselines(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range c.proxyPods(ctx) {
			reported := c.reachability(ctx, g, &pod)
			g.Expect(reported).NotTo(BeNil(), "reachability of other nodes from %s", pod.Spec.NodeName)
			g.Expect(reported.Families["IPv4"].WithBaseline).To(Equal(len(c.nodes)-1), "nodes for which %s has a baseline: %+v",
				pod.Spec.NodeName, reported)
		}
	}).WithContext(ctx).Should(Succeed())
}

// reachability returns the reachability of other nodes in a proxy's status.
func (c cluster) reachability(ctx context.Context, g Gomega, proxy *corev1.Pod) *status.Reachability {
	output, _ := c.exec(ctx, proxy, "/proxy", "status", "--output=json") // it exits with 1 while something disagrees
	var page struct {
		Proxy *status.Summary `json:"proxy"`
	}
	g.Expect(json.Unmarshal([]byte(output), &page)).To(Succeed(), output)
	g.Expect(page.Proxy).NotTo(BeNil(), output)
	return page.Proxy.Reachability
}

// proxyName returns the service proxy name of Vicinity, if it serves only the Services with that label value.
func (c cluster) proxyName(ctx context.Context) (name string, ok bool) {
	GinkgoHelper()
	found, err := c.AppsV1().DaemonSets(proxyNamespace).Get(ctx, proxyDaemonSet(), metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, arg := range found.Spec.Template.Spec.Containers[0].Args {
		if name, ok = strings.CutPrefix(arg, "--service-proxy-name="); ok {
			return name, true
		}
	}
	return "", false
}
