package packets_test

import (
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// twoNodes is a node with the endpoint near, another node with the endpoint far, and every kind of client of the first
// node.
type twoNodes struct {
	*cluster
	near, far       *pod
	pod, node, host []*fabric.Namespace
	external        []path // every external frontend
}

func newTwoNodes(t *testing.T, config setup) *twoNodes {
	t.Helper()
	config.nodes = 2
	c := setUp(t, config)
	return &twoNodes{
		cluster: c, near: c.addServer(c.nodes[0], "near"), far: c.addServer(c.nodes[1], "far"),
		pod:      []*fabric.Namespace{c.addPod(c.nodes[0], "client").Namespace},
		node:     []*fabric.Namespace{c.nodes[0].Namespace},
		host:     []*fabric.Namespace{c.addHost("host", c.nodes[0])},
		external: web.paths(c.nodes[0], externalKinds...),
	}
}

func (n *twoNodes) clients() []*fabric.Namespace { return slices.Concat(n.pod, n.node, n.host) }

// TestExternalTrafficLocalWithoutALocalEndpoint checks that internal clients reach endpoints on other nodes, a pod with
// its own address and the node masqueraded. All other clients time out. Without a detector a pod counts as external.
func TestExternalTrafficLocalWithoutALocalEndpoint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup setup
		pod   expectation
	}{
		"with a detector": {setup{config: clusterCIDR()}, servedBy("far")},
		"no detector":     {setup{config: withoutDetector()}, timesOut},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTwoNodes(t, test.setup)
			c.apply(service(web.withEverything, externalLocal).Merge(endpoints(c.far)))
			expect(t, "a pod", c.pod, c.external, test.pod)
			expect(t, "the node", c.node, c.external, servedBy("far"))
			expect(t, "another host", c.host, c.external, timesOut)
		})
	}
}

// TestTheShortCircuitHonoursTopology checks that internal clients get the same endpoints as from a ClusterIP.
func TestTheShortCircuitHonoursTopology(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	hinted := endpoints(c.near, c.far)
	for _, slice := range hinted.Slices {
		slice.Endpoints[0].HintZones = []string{"zone-of-node-2"}
		slice.Endpoints[1].HintZones = []string{"zone-of-node-1"}
	}
	c.apply(service(web.withEverything, externalLocal).Merge(hinted))
	for range 8 {
		expect(t, "a pod follows the hints", c.pod, c.external, servedBy("far"))
		expect(t, "the node follows the hints", c.node, c.external, servedBy("far"))
		expect(t, "another host stays on the node", c.host, c.external, servedBy("near"))
	}
}

// TestLocalAndClusterEndpointsFallBackIndependently checks that local and cluster-wide endpoints fall back to terminating
// ones independently.
func TestLocalAndClusterEndpointsFallBackIndependently(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	mixed := endpoints(c.near, c.far)
	for _, slice := range mixed.Slices {
		slice.Endpoints[0].Ready, slice.Endpoints[0].Terminating = false, true
	}
	c.apply(service(web.withEverything, externalLocal).Merge(mixed))
	for range 8 {
		expect(t, "a pod goes to the ready endpoint", c.pod, c.external, servedBy("far"))
		expect(t, "the node goes to the ready endpoint", c.node, c.external, servedBy("far"))
		expect(t, "another host goes to the local one, which terminates", c.host, c.external, servedBy("near"))
	}
	c.apply(service(web.withEverything, internalLocal))
	for range 8 {
		expect(t, "internalTrafficPolicy Local goes to the local one, which terminates", c.pod, paths, servedBy("near"))
		expect(t, "externalTrafficPolicy Cluster goes to the ready one", c.host, c.external, servedBy("far"))
	}
}

// TestTopologyKeysHoldForEveryFrontend checks that topology keys apply to every kind of frontend.
func TestTopologyKeysHoldForEveryFrontend(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	allPaths := append(web.paths(c.nodes[0], model.ClusterIP), c.external...)
	for _, step := range []struct {
		desc, want string
		endpoints  []*pod
	}{
		{"an endpoint in the zone", "near", []*pod{c.near, c.far}},
		{"no endpoint in the zone", "far", []*pod{c.far}},
		{"an endpoint in the zone again", "near", []*pod{c.near, c.far}},
	} {
		c.apply(service(web.withEverything, topologyKeys(policy.Zone, policy.AnyNode)).Merge(endpoints(step.endpoints...)))
		for _, clients := range [][]*fabric.Namespace{c.pod, c.node, c.host} {
			for range 4 {
				expect(t, step.desc, clients, allPaths, servedBy(step.want))
			}
		}
	}
}

// TestAPolicyChangesForNewConnectionsAtOnce changes a policy and changes it back.
func TestAPolicyChangesForNewConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	node := c.nodes[0]
	c.apply(endpoints(c.near, c.far))
	for range 2 {
		c.apply(service(web.withEverything, internalLocal, externalLocal))
		expect(t, "internalTrafficPolicy Local", c.pod, paths, local.expectation(node, c.near, c.far))
		expect(t, "externalTrafficPolicy Local", c.host, c.external, local.expectation(node, c.near, c.far))
		c.apply(service(web.withEverything))
		expect(t, "internalTrafficPolicy Cluster", c.pod, paths, all.expectation(node, c.near, c.far))
		expect(t, "externalTrafficPolicy Cluster", c.host, c.external, allMasq.expectation(node, c.near, c.far))
	}
}
