package packets_test

import (
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// town is a node with the endpoint near, another node with the endpoint far, and every kind of client of the first
// node.
type town struct {
	*cluster
	near, far       *pod
	pod, node, host []*fabric.Namespace
	external        []path // every external frontend
}

func newTown(t *testing.T, config setup) *town {
	t.Helper()
	config.nodes = 2
	c := setUp(t, config)
	return &town{
		cluster: c, near: c.addServer(c.nodes[0], "near"), far: c.addServer(c.nodes[1], "far"),
		pod:      []*fabric.Namespace{c.addPod(c.nodes[0], "client").Namespace},
		node:     []*fabric.Namespace{c.nodes[0].Namespace},
		host:     []*fabric.Namespace{c.addHost("host", c.nodes[0])},
		external: web.paths(c.nodes[0], externalKinds...),
	}
}

func (t *town) clients() []*fabric.Namespace { return slices.Concat(t.pod, t.node, t.host) }

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
			here := newTown(t, test.setup)
			here.apply(service(web.withEverything, externalLocal).Merge(endpoints(here.far)))
			expect(t, "a pod", here.pod, here.external, test.pod)
			expect(t, "the node", here.node, here.external, servedBy("far"))
			expect(t, "another host", here.host, here.external, timesOut)
		})
	}
}

// TestTheShortCircuitHonoursTopology checks that internal clients get the same endpoints as from a ClusterIP.
func TestTheShortCircuitHonoursTopology(t *testing.T) {
	t.Parallel()
	here := newTown(t, setup{config: clusterCIDR()})
	hinted := endpoints(here.near, here.far)
	for _, slice := range hinted.Slices {
		slice.Endpoints[0].HintZones = []string{"zone-of-node-2"}
		slice.Endpoints[1].HintZones = []string{"zone-of-node-1"}
	}
	here.apply(service(web.withEverything, externalLocal).Merge(hinted))
	for range 8 {
		expect(t, "a pod follows the hints", here.pod, here.external, servedBy("far"))
		expect(t, "the node follows the hints", here.node, here.external, servedBy("far"))
		expect(t, "another host stays on the node", here.host, here.external, servedBy("near"))
	}
}

// TestTerminatingEndpointsServeEachPathByItself checks that local and cluster-wide endpoints fall back to terminating
// ones independently.
func TestTerminatingEndpointsServeEachPathByItself(t *testing.T) {
	t.Parallel()
	here := newTown(t, setup{config: clusterCIDR()})
	mixed := endpoints(here.near, here.far)
	for _, slice := range mixed.Slices {
		slice.Endpoints[0].Ready, slice.Endpoints[0].Terminating = false, true
	}
	here.apply(service(web.withEverything, externalLocal).Merge(mixed))
	for range 8 {
		expect(t, "a pod goes to the ready endpoint", here.pod, here.external, servedBy("far"))
		expect(t, "the node goes to the ready endpoint", here.node, here.external, servedBy("far"))
		expect(t, "another host goes to the local one, which terminates", here.host, here.external, servedBy("near"))
	}
	here.apply(service(web.withEverything, internalLocal))
	for range 8 {
		expect(t, "internalTrafficPolicy Local goes to the local one, which terminates", here.pod, paths, servedBy("near"))
		expect(t, "externalTrafficPolicy Cluster goes to the ready one", here.host, here.external, servedBy("far"))
	}
}

// TestTopologyKeysHoldForEveryFrontend checks that topology keys apply to every kind of frontend.
func TestTopologyKeysHoldForEveryFrontend(t *testing.T) {
	t.Parallel()
	here := newTown(t, setup{config: clusterCIDR()})
	everywhere := append(web.paths(here.nodes[0], model.ClusterIP), here.external...)
	for _, step := range []struct {
		why, want string
		endpoints []*pod
	}{
		{"an endpoint in the zone", "near", []*pod{here.near, here.far}},
		{"no endpoint in the zone", "far", []*pod{here.far}},
		{"an endpoint in the zone again", "near", []*pod{here.near, here.far}},
	} {
		here.apply(service(web.withEverything, topologyKeys(policy.Zone, policy.AnyNode)).Merge(endpoints(step.endpoints...)))
		for _, clients := range [][]*fabric.Namespace{here.pod, here.node, here.host} {
			for range 4 {
				expect(t, step.why, clients, everywhere, servedBy(step.want))
			}
		}
	}
}

// TestAPolicyChangesForNewConnectionsAtOnce changes a policy and changes it back.
func TestAPolicyChangesForNewConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	here := newTown(t, setup{config: clusterCIDR()})
	node := here.nodes[0]
	here.apply(endpoints(here.near, here.far))
	for range 2 {
		here.apply(service(web.withEverything, internalLocal, externalLocal))
		expect(t, "internalTrafficPolicy Local", here.pod, paths, local.holds(node, here.near, here.far))
		expect(t, "externalTrafficPolicy Local", here.host, here.external, local.holds(node, here.near, here.far))
		here.apply(service(web.withEverything))
		expect(t, "internalTrafficPolicy Cluster", here.pod, paths, all.holds(node, here.near, here.far))
		expect(t, "externalTrafficPolicy Cluster", here.host, here.external, allMasq.holds(node, here.near, here.far))
	}
}
