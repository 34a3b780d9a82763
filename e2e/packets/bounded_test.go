package packets_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// maxLoad sets the load bound of every endpoint, in percent of the mean.
func maxLoad(percent uint64) func(*model.Service) {
	return func(s *model.Service) { s.Topology.MaxLoad = percent }
}

// load is the distribution of connections over endpoints. Each node makes the same number.
type load struct {
	byPod map[string]int
	// near counts the connections that stay in the node's zone; each node is a zone.
	near, all int
}

// measure makes each client connect the given number of times, and counts the connections by server.
func (c *cluster) measure(clients []*fabric.Pod, servers []*pod, each int) load {
	c.t.Helper()
	nodeOf := map[string]*fabric.Node{}
	for _, server := range servers {
		nodeOf[server.Name] = server.Node
	}
	found := load{byPod: map[string]int{}, all: each * len(clients)}
	for _, client := range clients {
		for number := range each {
			to := overNetworks(paths, "tcp")[number%2] // both families
			name := mustRequest(c.t, client.Namespace, to).Pod
			found.byPod[name]++
			if nodeOf[name] == client.Node {
				found.near++
			}
		}
	}
	return found
}

// busiest returns the largest load of an endpoint, divided by the mean.
func (l load) busiest(endpoints int) float64 {
	return float64(slices.Max(slices.Collect(maps.Values(l.byPod)))) * float64(endpoints) / float64(l.all)
}

func (l load) String() string {
	return fmt.Sprintf("%.1f %% in-zone, by pod %v", 100*float64(l.near)/float64(l.all), l.byPod)
}

// TestMaxLoadKeepsTrafficNearUpToTheBound has three zones of one node each, with six, one and one endpoints. Without a
// bound, the two single endpoints would get 2.67 times the mean. With a bound of 120 % they get 1.2 times the mean, and
// the six get the rest. By chance, a count exceeds the tolerance once in a hundred thousand counts.
func TestMaxLoadKeepsTrafficNearUpToTheBound(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	var servers []*pod
	var clients []*fabric.Pod
	for zone, count := range []int{6, 1, 1} {
		clients = append(clients, c.addPod(c.nodes[zone], fmt.Sprint("client-", zone)))
		for number := range count {
			servers = append(servers, c.addServer(c.nodes[zone], fmt.Sprintf("server-%d-%d", zone, number)))
		}
	}
	keys := topologyKeys(policy.Zone, policy.AnyNode)
	c.apply(model.Change{AllNodes: new(true)}.Merge(endpoints(servers...)))

	const each = 1200
	c.apply(service(keys))
	without := c.measure(clients, servers, each)
	c.apply(service(keys, maxLoad(120)))
	with := c.measure(clients, servers, each)
	t.Logf("without a bound: busiest %.2f, %s", without.busiest(len(servers)), without)
	t.Logf("120 %%:           busiest %.2f, %s", with.busiest(len(servers)), with)

	// The mean of 3600 connections is 450: the single endpoints get 540 each, the others 420. All 1200 connections of
	// the first node stay in their zone, and 45 % of the other nodes' connections: 63.3 % of all.
	want := map[string]float64{"server-1-0": 540, "server-2-0": 540}
	for number := range 6 {
		want[fmt.Sprintf("server-0-%d", number)] = 420
	}
	for name, expected := range want {
		const rounding = 0.026 // of slots, as package balance states
		if deviation := math.Abs(float64(with.byPod[name]) - expected); deviation > 4.4*math.Sqrt(expected)+rounding*expected {
			t.Errorf("%s got %d connections, want about %.0f", name, with.byPod[name], expected)
		}
	}
	if near := float64(with.near) / float64(with.all); math.Abs(near-0.6333) > 0.045 {
		t.Errorf("%.1f %% of the connections stayed in their zone, want 63.3 %%", 100*near)
	}
	if busiest := without.busiest(len(servers)); busiest < 2.6 {
		t.Errorf("without a bound the busiest endpoint got only %.2f times the mean, so the test proves nothing", busiest)
	}
}

// TestAClientWithAffinityKeepsAnEndpointWithoutSlots checks that clients keep their endpoint when a plan gives the
// endpoint's connections from this node to nearer endpoints.
func TestAClientWithAffinityKeepsAnEndpointWithoutSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	near, far := c.addServer(c.nodes[0], "near"), c.addServer(c.nodes[1], "far")
	client, other := c.addPod(c.nodes[0], "client"), c.addPod(c.nodes[0], "other")
	c.apply(model.Change{AllNodes: new(true)}.Merge(endpoints(far)))
	c.apply(service(topologyKeys(policy.Zone, policy.AnyNode), maxLoad(120), affinity(time.Hour)))
	for _, to := range paths {
		c.apply(endpoints(far))
		if got := expectOneServer(t, client.Namespace, to, 4); got != "far" {
			t.Fatalf("%s: %s replied, want far, the only endpoint", to, got)
		}
		c.apply(endpoints(near, far))
		if got := expectOneServer(t, client.Namespace, to, 8); got != "far" {
			t.Errorf("%s: the client was moved to %s", to, got)
		}
		if got := expectOneServer(t, other.Namespace, to, 8); got != "near" {
			t.Errorf("%s: a new client got %s, want near", to, got)
		}
		c.apply(endpoints(near))
		if got := expectOneServer(t, client.Namespace, to, 4); got != "near" {
			t.Errorf("%s: %s replied, want near after far was removed", to, got)
		}
	}
}

// TestARolloutOverloadsNoEndpoint replaces twelve pods one by one. The new pods start where the scheduler has room,
// first all in one zone. Every node makes the same number of connections in each step. With topology keys alone, the
// last pods in a zone would get all connections of that zone.
func TestARolloutOverloadsNoEndpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	var clients []*fabric.Pod
	for zone := range c.nodes {
		clients = append(clients, c.addPod(c.nodes[zone], fmt.Sprint("client-", zone)))
	}
	const pods, each = 12, 300
	var live, coming []*pod
	for number := range pods {
		live = append(live, c.addServer(c.nodes[number%3], fmt.Sprint("old-", number)))
		coming = append(coming, c.addServer(c.nodes[number*3/pods], fmt.Sprint("new-", number)))
	}
	c.apply(model.Change{AllNodes: new(true)})
	keys := topologyKeys(policy.Zone, policy.AnyNode)
	worst := map[bool]float64{}
	for step := range pods + 1 {
		serving := append(slices.Clone(live[step:]), coming[:step]...)
		c.apply(endpoints(serving...))
		for _, isBounded := range []bool{false, true} {
			edits := []func(*model.Service){keys}
			if isBounded {
				edits = append(edits, maxLoad(120))
			}
			c.apply(service(edits...))
			worst[isBounded] = max(worst[isBounded], c.measure(clients, serving, each).busiest(len(serving)))
		}
	}
	t.Logf("the busiest endpoint of all steps got %.2f times the mean without a bound, %.2f with 120 %%", worst[false], worst[true])
	// The mean is 75 connections: 4.4 standard deviations of 90 are 42, and there are 13 steps with 12 endpoints each.
	if most := 1.2 + 4.4*math.Sqrt(90)/75; worst[true] > most {
		t.Errorf("with a bound of 1.2 an endpoint got %.2f times the mean, want %.2f at most", worst[true], most)
	}
	if worst[false] < 1.9 {
		t.Errorf("without a bound the busiest endpoint got only %.2f times the mean, so the test proves nothing", worst[false])
	}
}
