package demand_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	// connectionsPerSecond is the rate of all clients together. Nine of ten connections come from busyZone.
	connectionsPerSecond = 200
	busyZone             = "zone-b"
	// withinBound is the maximum load of an endpoint, as a multiple of the mean, apart from chance: the bound plus the
	// rounding to slots.
	withinBound = 1.25
	// observedConnections is the number of connections to count for a check of the bound.
	observedConnections = 4000
)

// diallers are clients that make connections at a fixed rate, nine of ten of them in one zone, until the test ends.
type diallers struct {
	cluster *testCluster
	failed  atomic.Int64
	mutex   sync.Mutex
	counts  map[string]int // by the pod that responded
}

func (c *testCluster) startDiallers(t *testing.T) *diallers {
	t.Helper()
	diallers := &diallers{cluster: c, counts: map[string]int{}}
	inZone := map[bool]int{}
	for _, node := range c.nodes {
		inZone[zoneNamed(node.Name) == busyZone]++
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i, node := range c.nodes {
		share := 0.1 / float64(inZone[false])
		if zoneNamed(node.Name) == busyZone {
			share = 0.9 / float64(inZone[true])
		}
		clients.Go(func() {
			repeat(time.Duration(float64(time.Second)/(share*connectionsPerSecond)), stop, func() { diallers.request(i) })
		})
	}
	t.Cleanup(func() {
		close(stop)
		clients.Wait()
		if failed := diallers.failed.Load(); failed > 0 {
			t.Errorf("%d connections failed", failed)
		}
	})
	return diallers
}

// repeat starts a call once in each pause until stop is closed, without waiting for earlier ones. It catches up after
// delays of a busy machine, so that the zones' shares stay the same.
func repeat(pause time.Duration, stop chan struct{}, call func()) {
	var dialling sync.WaitGroup
	defer dialling.Wait()
	for next := time.Now(); ; next = next.Add(pause) {
		select {
		case <-stop:
			return
		case <-time.After(time.Until(next)):
		}
		dialling.Go(call)
	}
}

// request makes a connection from a pod.
func (d *diallers) request(pod int) {
	reply, err := d.cluster.pods[pod].Get(d.cluster.web)
	if err != nil {
		d.failed.Add(1)
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.counts[reply.Pod]++
}

// counted returns the number of responses so far by pod.
func (d *diallers) counted() map[string]int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return maps.Clone(d.counts)
}

// busiest counts a number of further connections, and returns the load of the busiest pod as a multiple of the mean.
func (d *diallers) busiest(t *testing.T, connections int) float64 {
	t.Helper()
	before := d.counted()
	var highest, total int
	wait.Until(t, fmt.Sprint(connections, " connections"), func() bool {
		highest, total = 0, 0
		for pod, count := range d.counted() {
			highest, total = max(highest, count-before[pod]), total+count-before[pod]
		}
		return total >= connections
	})
	return float64(highest) / (float64(total) / float64(len(d.cluster.pods)))
}

// expectBound counts further connections, and checks that no pod exceeds the bound by more than chance: three standard
// deviations. Proxies may not have the newest plan yet, so the bound must hold in one of three windows.
func (d *diallers) expectBound(t *testing.T, when string) {
	t.Helper()
	mean := float64(observedConnections) / float64(len(d.cluster.pods))
	limit, got := withinBound+3*math.Sqrt(withinBound/mean), 0.0
	for range 3 {
		got = d.busiest(t, observedConnections)
		t.Logf("%s, the busiest endpoint gets %.2f times the mean", when, got)
		if got <= limit {
			return
		}
	}
	t.Errorf("%s, the busiest endpoint got %.2f times the mean, want at most %.2f", when, got, limit)
}

// writtenElements returns the number of elements that each proxy has written into the kernel so far.
func (c *testCluster) writtenElements(t *testing.T) map[string]float64 {
	t.Helper()
	written := map[string]float64{}
	for i, node := range c.nodes {
		if c.proxies[i] == nil || c.proxies[i].HasExited() {
			continue
		}
		wait.Success(t, "the metrics of "+node.Name, func() (err error) {
			written[node.Name], err = c.proxies[i].Metric(metricsAddress, "vicinity_nft_elements_written_total")
			return err
		})
	}
	return written
}

// waitUntilSettled waits until the proxies have applied the published demand: neither the object nor the number of written
// elements changes during some rounds of the leader.
func (c *testCluster) waitUntilSettled(t *testing.T, leader *replica) (object *v1alpha1.ServiceDemand, elements map[string]float64) {
	t.Helper()
	wait.Until(t, "stable demand and elements", func() bool {
		object, elements = objectOf(t, c.client, "web"), c.writtenElements(t)
		_, began := leader.lastRound()
		wait.Until(t, "five rounds", func() bool { _, rounds := leader.lastRound(); return rounds >= began+5 })
		current := c.writtenElements(t)
		return objectOf(t, c.client, "web").ResourceVersion == object.ResourceVersion && maps.Equal(current, elements)
	})
	return object, elements
}

// TestLoadBoundHoldsWithMeasuredDemand has three zones with two nodes and endpoints each, and 200 connections per
// second, nine of ten from one zone. The bound holds once demand is measured, with any leader, and while a third of the
// proxies is stopped. Nothing is written while nothing changes.
func TestLoadBoundHoldsWithMeasuredDemand(t *testing.T) {
	c := newTestClusterOf(t, "measured", "node-a1", "node-a2", "node-b1", "node-b2", "node-c1", "node-c2")
	diallers := c.startDiallers(t)
	if got := diallers.busiest(t, 1000); got < 2 {
		t.Errorf("without measured demand, the busiest endpoint got %.2f times the mean, want at least 2", got)
	}
	one := c.start(t, "one", time.Hour)
	wait.Until(t, "all six proxies plan with measured demand", func() bool { return c.countPlannedWith("measured") == len(c.nodes) })
	wait.Until(t, "the actual demand is published", func() bool { return c.demandOf(t, busyZone) > 880_000 })
	diallers.expectBound(t, "with measured demand")
	_, rounds := one.lastRound()
	t.Logf("the bound holds after at most %d rounds", rounds)
	output := c.explain(t, 2)
	for _, want := range []string{"Demand was measured at ", "reports from 6 of 6 nodes: zone-b ", "would get 2."} {
		if !strings.Contains(output, want) {
			t.Errorf("explain lacks %q:\n%s", want, output)
		}
	}

	// The leader ends. Its successor continues with the values of the object, and no slot moves.
	two := c.start(t, "two", time.Hour)
	before, elements := c.waitUntilSettled(t, one)
	one.stop()
	wait.Until(t, "ten rounds of the successor", func() bool { _, rounds := two.lastRound(); return rounds >= 10 })
	if after := objectOf(t, c.client, "web"); math.Abs(float64(zoneDemand(after, busyZone))-float64(zoneDemand(before, busyZone))) > 25_000 {
		t.Errorf("the successor published %v, want %v", after.Zones, before.Zones)
	}
	if current := c.writtenElements(t); objectOf(t, c.client, "web").ResourceVersion == before.ResourceVersion &&
		!maps.Equal(current, elements) {
		t.Errorf("elements were written without new demand: %v after %v", current, elements)
	}

	// A third of the proxies stops. Their rules stay, and their nodes count as before.
	for _, node := range []int{1, 3} {
		must.Succeed(t, c.proxies[node].Stop(wait.Timeout))
	}
	two.log.WaitFor(t, "some proxies did not report")
	_, began := two.lastRound()
	wait.Until(t, "ten rounds without them", func() bool { _, rounds := two.lastRound(); return rounds >= began+10 })
	diallers.expectBound(t, "with a third of the proxies stopped")
	if got := c.demandOf(t, busyZone); got < 870_000 {
		t.Errorf("demand of zone-b is %d ppm with a third of the proxies stopped, want at least 870000", got)
	}
	for _, node := range []int{1, 3} {
		c.startProxy(t, node)
	}

	// No leader publishes for more than an hour, so proxies use the default demand.
	two.stop()
	c.ageLease(t, 2*time.Hour)
	wait.Until(t, "all six proxies plan with default demand", func() bool { return c.countPlannedWith("labels") == len(c.nodes) })
	if got := diallers.busiest(t, 1000); got < 2 {
		t.Errorf("with default demand, the busiest endpoint got %.2f times the mean, want at least 2", got)
	}
	if output := c.explain(t, 2); !strings.Contains(output, string(v1alpha1.DemandLeaseNotRenewed)) {
		t.Errorf("explain does not report the expired Lease:\n%s", output)
	}
}

// TestLyingProxy checks that a program in place of a node's proxy can at most disable the bound: endpoints get the
// load of the zone preference alone, other Services are not affected, and the bound holds again when the program ends.
func TestLyingProxy(t *testing.T) {
	c := newTestClusterOf(t, "measured", "node-a1", "node-a2", "node-b1", "node-b2", "node-c1", "node-c2")
	diallers := c.startDiallers(t)
	replica := c.start(t, "one", time.Hour)
	wait.Until(t, "the actual demand is published", func() bool { return c.demandOf(t, busyZone) > 880_000 })

	must.Succeed(t, c.proxies[4].Stop(wait.Timeout))
	lying := c.startLyingProxy(t, 4)
	wait.Until(t, "the false demand is published", func() bool { return c.demandOf(t, "zone-c") > 900_000 })
	// With the zone preference alone, each of the two endpoints would get 0.45 of all connections, 2.7 times the mean.
	if got := diallers.busiest(t, observedConnections/2); got > 2.7*1.1+1./8 {
		t.Errorf("the busiest endpoint got %.2f times the mean, more than with the zone preference alone", got)
	}
	if token := lying.token.Load(); token == nil || c.isAllowed(t, *token, "get", "nodes") || c.isAllowed(t, *token, "list", "services") {
		t.Error("the lying proxy got no token, or one that permits more than one page")
	}
	lying.stop()
	c.startProxy(t, 4)
	wait.Until(t, "the actual demand is published", func() bool { return c.demandOf(t, busyZone) > 880_000 })
	diallers.expectBound(t, "after the false reports")
	if replica.failures() > 0 {
		t.Errorf("the replica reported %d failures, want none", replica.failures())
	}
}

// lyingProxy is a server in place of a node's proxy.
type lyingProxy struct {
	stop  func()
	token atomic.Pointer[string]
}

// startLyingProxy reports a million connections of a node in each round, to a Service and to Services that do not exist.
func (c *testCluster) startLyingProxy(t *testing.T, node int) *lyingProxy {
	t.Helper()
	l := &lyingProxy{}
	var rounds atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.token.Store(new(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
		page := demandapi.Page{
			Cursor: fmt.Sprint("lie-", rounds.Add(1)), Duration: time.Second,
			Counts: map[string]uint64{"shop/web": 1_000_000, "shop/none": 1_000_000, "kube-system/web": 1},
		}
		_, _ = w.Write(page.Text())
	}))
	must.Succeed(t, server.Listener.Close())
	var err error
	server.Listener, err = c.nodes[node].Listen("tcp", fmt.Sprint("0.0.0.0:", port))
	must.Succeed(t, err)
	server.StartTLS()
	l.stop = sync.OnceFunc(server.Close)
	t.Cleanup(l.stop)
	return l
}

// countPlannedWith returns the number of proxies that plan the Service with demand from the given source.
func (c *testCluster) countPlannedWith(source string) (proxies int) {
	for _, proxy := range c.proxies {
		ports, err := proxy.Metric(metricsAddress, "vicinity_load_bounded_service_ports", `demand_source="`+source+`"`)
		if err == nil && ports > 0 {
			proxies++
		}
	}
	return proxies
}

// demandOf returns the published demand of a zone; 0 if there is none.
func (c *testCluster) demandOf(t *testing.T, zone string) uint32 {
	t.Helper()
	if object := objectOf(t, c.client, "web"); object != nil {
		return zoneDemand(object, zone)
	}
	return 0
}

// ageLease sets the renewal time of the Lease to the given time ago.
func (c *testCluster) ageLease(t *testing.T, ago time.Duration) {
	t.Helper()
	leases := c.api.Admin.CoordinationV1().Leases(system)
	lease, err := leases.Get(t.Context(), v1alpha1.DemandLeaseName, metav1.GetOptions{})
	must.Succeed(t, err)
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-ago)))
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	must.Succeed(t, err)
}

// explain returns the output of the proxy's explain command for the Service on a node.
func (c *testCluster) explain(t *testing.T, node int) string {
	t.Helper()
	kubeconfig := site.Kubeconfig(t, c.api.Account(t, "kube-system", "vicinity-proxy"))
	command := exec.CommandContext(t.Context(), site.Program(t, "proxy"), "explain", "shop/web", "--kubeconfig", kubeconfig,
		"--node", c.nodes[node].Name)
	output, err := c.control.Run(command)
	must.Succeed(t, err)
	return output
}

// isAllowed reports whether a token permits the request.
func (c *testCluster) isAllowed(t *testing.T, token, verb, resource string) bool {
	t.Helper()
	config := rest.AnonymousClientConfig(c.api.AdminConfig())
	config.BearerToken = token
	clients, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	request := &authorizationv1.SelfSubjectAccessReview{}
	request.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource}
	review, err := clients.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), request, metav1.CreateOptions{})
	must.Succeed(t, err)
	return review.Status.Allowed
}
