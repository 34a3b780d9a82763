// Package demand_test tests the measurement of demand: real proxies count real connections, and the webhook's replicas
// pull the counts with the permissions of the manifests. It needs root.
//
// To test with real connections, see bound_test.go; with many nodes and given rates, publish_test.go.
package demand_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/sent"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
)

const (
	system  = "vicinity-system"
	account = "vicinity-demand-reader"
	port    = 10449
	// pullInterval is the interval between pulls.
	pullInterval = time.Second
)

// testCluster is three zones with equally many nodes, an endpoint on each node, and an API server on a separate host.
type testCluster struct {
	api     *site.Site
	client  client.Client // for ServiceDemands
	control *fabric.Host
	nodes   []*fabric.Node
	pods    []*fabric.Pod
	proxies []*site.Process
	web     netip.AddrPort // the Service shop/web, which has a load bound
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	return newTestClusterOf(t, "", "node-a", "node-b", "node-c")
}

// newTestClusterOf returns a cluster with the named nodes, each in the zone of the letter after the first hyphen, and a
// Service with the annotations that withDemand returns for clients.
func newTestClusterOf(t *testing.T, clients string, names ...string) *testCluster {
	t.Helper()
	network := fabrictest.New(t)
	c := &testCluster{}
	for _, name := range names {
		node, err := network.AddNode(name)
		must.Succeed(t, err)
		pod, err := node.AddPod("pod-" + name)
		must.Succeed(t, err)
		_, err = pod.Serve(objects.TargetPort)
		must.Succeed(t, err)
		c.nodes, c.pods = append(c.nodes, node), append(c.pods, pod)
	}
	var err error
	c.control, err = network.AddHost("control-plane", c.nodes[0])
	must.Succeed(t, err)
	c.api = site.New(t, site.Config{Namespace: c.control.Namespace})
	c.client = installComponent(t, c.api)
	c.write(t, clients)
	for range c.nodes {
		c.proxies = append(c.proxies, nil)
	}
	for i := range c.nodes {
		c.startProxy(t, i)
	}
	return c
}

// startProxy starts the proxy of a node, and waits until its rules are in the kernel.
func (c *testCluster) startProxy(t *testing.T, node int) {
	t.Helper()
	kubeconfig := site.Kubeconfig(t, c.api.Account(t, "kube-system", "vicinity-proxy"))
	c.proxies[node] = site.Start(t, c.nodes[node].Namespace, exec.Command(site.Program(t, "proxy"), "run", "--kubeconfig", kubeconfig,
		"--node", c.nodes[node].Name, "--own-tables", "never", "--cluster-cidr", fabric.PodsIPv4.String(),
		"--secure-metrics-bind-address", fmt.Sprint("0.0.0.0:", port), "--metrics-bind-address", metricsAddress))
	c.proxies[node].Log.WaitFor(t, "the first sync is in the kernel")
}

// metricsAddress is the address of each proxy's metrics.
const metricsAddress = "127.0.0.1:10249"

// write writes Nodes, a Service with a load bound, its endpoints, and the endpoints of the proxies.
func (c *testCluster) write(t *testing.T, clients string) {
	t.Helper()
	web := objects.Slice("shop", "web-1", "web")
	proxies := objects.Slice("kube-system", "vicinity-proxy-1", "vicinity-proxy")
	for i, node := range c.nodes {
		zone := zoneNamed(node.Name)
		c.api.Create(t, objects.Node(node.Name, map[string]string{corev1.LabelTopologyZone: zone}, node.IPv4, node.IPv6))
		for slice, addr := range map[*discoveryv1.EndpointSlice]netip.Addr{web: c.pods[i].IPv4, proxies: node.IPv4} {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{addr.String()}, NodeName: new(node.Name), Zone: new(zone),
			})
		}
	}
	changes := []func(*corev1.Service){
		objects.Annotated(policy.TopologyKeysAnnotation, corev1.LabelTopologyZone+",*"), objects.Annotated(policy.MaxLoadAnnotation, "120%"),
	}
	service := objects.Service("shop", "web", append(changes, withDemand(clients)...)...)
	c.api.Create(t, objects.Namespace("shop", nil, nil))
	c.api.Create(t, service)
	c.api.Create(t, web)
	c.api.Create(t, proxies)
	c.web = netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), objects.ServicePort)
}

// zoneNamed returns the zone of a node: that of the letter after the first hyphen of its name.
func zoneNamed(node string) string { return "zone-" + strings.TrimPrefix(node, "node-")[:1] }

// replica is a replica of the webhook that measures demand or waits to become the leader.
type replica struct {
	log        *logs.Log
	stop       func()
	mutex      sync.Mutex
	rounds     []demand.Round
	endedTerms int
	// writes are the requests that the replica sends, reported the numbers of writes that it reports to its observer.
	writes   *sent.Writes
	reported map[string]int
	failed   int
	backlog  v1alpha1.DemandBacklog
}

func (r *replica) Measured(round demand.Round) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.rounds = append(r.rounds, round)
}

func (r *replica) LeadEnded() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.endedTerms++
}

func (r *replica) MeasureFailed() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.failed++
}

func (r *replica) Queued(waiting v1alpha1.DemandBacklog) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.backlog = waiting
}

func (r *replica) Published(operation string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.reported[operation]++
}

// reportedWrites returns the numbers of created, updated and deleted objects that were reported to the observer.
func (r *replica) reportedWrites() map[string]int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return maps.Clone(r.reported)
}

// waiting returns the queued changes.
func (r *replica) waiting() v1alpha1.DemandBacklog {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.backlog
}

// failures returns the number of reported failures.
func (r *replica) failures() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.failed
}

// lastRound returns the last round, and the number of rounds.
func (r *replica) lastRound() (round demand.Round, rounds int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(r.rounds) > 0 {
		round = r.rounds[len(r.rounds)-1]
	}
	return round, len(r.rounds)
}

// start starts a replica with the permissions of the webhook's account.
func (c *testCluster) start(t *testing.T, identity string, minProblemDuration time.Duration) *replica {
	t.Helper()
	dial := site.Client(c.control.Namespace).Transport.(*http.Transport).DialContext
	return startReplica(t, c.api, identity, demand.Options{
		Puller: pull.New(port, dial), Every: pullInterval, MinProblemDuration: minProblemDuration,
	})
}

// dial connects from pods to the Service repeatedly until the test ends; each contains the number of connections of
// each pod in a round.
func (c *testCluster) dial(t *testing.T, each ...int) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for i, times := range each {
				for range times {
					if _, err := c.pods[i].Get(c.web); err != nil {
						t.Errorf("connection from %s to %s: %v", c.pods[i].Name, c.web, err)
						return
					}
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
}

// events returns the notes of the demand skew Events on the Service.
func (c *testCluster) events(t *testing.T) []string {
	t.Helper()
	list, err := c.api.Admin.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	var notes []string
	for i := range list.Items {
		if event := &list.Items[i]; event.Reason == demand.ReasonDemandSkew && event.Regarding.Name == "web" {
			notes = append(notes, event.Note)
		}
	}
	return notes
}

// TestDemandSkewEvent has 22 connections, 20 of them from one of three zones. One replica detects the skew
// and creates one Event. The other one takes over when the first ends. When a proxy ends, its node keeps its demand.
func TestDemandSkewEvent(t *testing.T) {
	c := newTestCluster(t)
	const minProblemDuration = 2 * time.Second
	one := c.start(t, "one", minProblemDuration)
	wait.Until(t, "the first replica leads", func() bool { return one.log.Has("elected") })
	two := c.start(t, "two", minProblemDuration)
	c.dial(t, 1, 20, 1)
	wait.Until(t, "one Event on the Service", func() bool { return len(c.events(t)) == 1 })
	if note := c.events(t)[0]; !strings.HasPrefix(note, "Clients in zone zone-b open ") || !strings.Contains(note, "assumes 33 %: ") ||
		!strings.Contains(note, "endpoints in zone zone-b get 2.") || !strings.Contains(note, "the bound allows 1.20") {
		t.Errorf("unexpected note of the Event: %s", note)
	}
	expectSkew(t, one)
	if _, rounds := two.lastRound(); rounds > 0 {
		t.Errorf("the second replica did %d rounds, want none while the first leads", rounds)
	}

	one.stop()
	wait.Until(t, "the other replica detects the skew", func() bool {
		round, _ := two.lastRound()
		return round.Reporting == 3 && round.Services["shop/web"].MaxSkew > 2
	})
	expectSkew(t, two)
	must.Succeed(t, c.proxies[2].Stop(wait.Timeout))
	two.log.WaitFor(t, "some proxies did not report")
	expectSkew(t, two)
	if _, rounds := one.lastRound(); one.endedTerms != 1 {
		t.Errorf("the first replica ended its term %d times, after %d rounds, want once", one.endedTerms, rounds)
	}
}

// expectSkew checks the skew of zone-b: it makes 20 of 22 connections, and estimates shrink to equal shares.
func expectSkew(t *testing.T, r *replica) {
	t.Helper()
	round, _ := r.lastRound()
	report := round.Services["shop/web"]
	if report.MostSkewedZone != "zone-b" || report.MaxSkew < 2 || report.MaxSkew > 20./22*3 || len(round.Services) != 1 {
		t.Errorf("skew %.3f in %q, want 2 to %.3f in zone-b; shares %v, %d Services", report.MaxSkew, report.MostSkewedZone, 20./22*3,
			report.Shares, len(round.Services))
	}
}

// TestTokenPermitsOnlyDemandPage checks the permissions of the token, because proxies see it, and so does any program in
// their place. The webhook's own account may create the token but not read the page.
func TestTokenPermitsOnlyDemandPage(t *testing.T) {
	c := newTestCluster(t)
	reader := c.api.Account(t, system, account).BearerToken
	webhook := c.api.Account(t, system, "vicinity-webhook").BearerToken
	client := site.Client(c.control.Namespace)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as the puller does
	for _, test := range []struct {
		who, token, path string
		want             int
	}{
		{"the account of the component", reader, demandapi.Path, 200},
		{"the account of the component", reader, "/metrics", 403},
		{"the webhook", webhook, demandapi.Path, 403},
		{"an invalid token", "abc", demandapi.Path, 401},
	} {
		url := fmt.Sprintf("https://%s:%d%s", c.nodes[0].IPv4, port, test.path)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must.Succeed(t, err)
		request.Header.Set("Authorization", "Bearer "+test.token)
		var status int
		var body []byte
		wait.Success(t, "a response", func() error {
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			status = response.StatusCode
			body, err = io.ReadAll(response.Body)
			return err
		})
		if status != test.want {
			t.Errorf("%s reads %s: status %d, want %d: %.100s", test.who, test.path, status, test.want, body)
		}
	}
	for verb, want := range map[string]string{
		"create serviceaccounts/vicinity-demand-reader --subresource token": "yes",
		"create serviceaccounts/vicinity-webhook --subresource token":       "no",
		"get secrets/vicinity-demand-reader":                                "no",
		"list endpoints":                                                    "no",
		"list endpointslices.discovery.k8s.io":                              "yes",
		"watch endpointslices.discovery.k8s.io":                             "no",
		"create events.events.k8s.io":                                       "yes",
		"patch services":                                                    "no",
	} {
		arguments := append([]string{"auth", "can-i", "--as", "system:serviceaccount:" + system + ":vicinity-webhook", "-n", system},
			strings.Fields(verb)...)
		output, _ := c.api.TryKubectl(t.Context(), arguments...) // kubectl also fails if the result is no
		if got, _, _ := strings.Cut(strings.TrimSpace(output), "\n"); got != want {
			t.Errorf("whether the webhook may %s: %q, want %q", verb, output, want)
		}
	}
	rules := c.api.Kubectl(t, "auth", "can-i", "--list", "--as", "system:serviceaccount:"+system+":"+account)
	for line := range strings.Lines(rules) {
		if strings.Contains(line, "/demand") != strings.HasSuffix(strings.TrimSpace(line), "[get]") && !isCommonPermission(line) {
			t.Errorf("the token's account also has the permission: %s", line)
		}
	}
}

// isCommonPermission reports whether every account has the permission.
func isCommonPermission(line string) bool {
	for _, common := range []string{
		"Resources", "selfsubject", "/api", "/healthz", "/livez", "/readyz", "/openapi", "/openid", "/version", "/.well-known",
	} {
		if strings.Contains(line, common) {
			return true
		}
	}
	return strings.TrimSpace(line) == ""
}
