package packets_test

import (
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// row is a row of the packet matrix. The policy is the one that governs the row's frontends; the other policy has no
// effect.
type row struct {
	kinds           []model.FrontendKind
	isLocal         bool // the policy is Local
	pod, node, host cell
}

func (r row) isExternal() bool { return r.kinds[0].IsExternal() }

func (r row) String() string {
	name := map[bool]string{false: "ClusterIP, internalTrafficPolicy ", true: "external, externalTrafficPolicy "}[r.isExternal()]
	return name + map[bool]string{false: "Cluster", true: "Local"}[r.isLocal]
}

var clusterIPOnly = []model.FrontendKind{model.ClusterIP}

// These are the packet matrix of kube-proxy and the rows that override it. Masquerade means that the server sees the
// node that translated the connection.
var (
	withDetector = []row{
		{kinds: clusterIPOnly, isLocal: false, pod: all, node: allMasq, host: allMasq},
		{kinds: clusterIPOnly, isLocal: true, pod: local, node: localMasq, host: localMasq},
		{kinds: externalKinds, isLocal: false, pod: allMasq, node: allMasq, host: allMasq},
		{kinds: externalKinds, isLocal: true, pod: all, node: allMasq, host: local},
	}
	// noDetector is for a proxy that cannot recognize pods: no connection to a ClusterIP is masqueraded, and pods have no
	// short circuit.
	noDetector = []row{
		{kinds: clusterIPOnly, isLocal: false, pod: all, node: all, host: all},
		{kinds: clusterIPOnly, isLocal: true, pod: local, node: local, host: local},
		{kinds: externalKinds, isLocal: false, pod: allMasq, node: allMasq, host: allMasq},
		{kinds: externalKinds, isLocal: true, pod: local, node: allMasq, host: local},
	}
	// masqueradeAll applies to ClusterIPs only; the detector still controls the short circuit.
	masqueradeAll           = append(slices.Clone(masqueradedClusterIPs), withDetector[2:]...)
	masqueradeAllNoDetector = append(slices.Clone(masqueradedClusterIPs), noDetector[2:]...)
	masqueradedClusterIPs   = []row{
		{kinds: clusterIPOnly, isLocal: false, pod: allMasq, node: allMasq, host: allMasq},
		{kinds: clusterIPOnly, isLocal: true, pod: localMasq, node: localMasq, host: localMasq},
	}
)

// policies are Services with all four pairs of policies, each with every kind of frontend.
var policies = []struct {
	app                          app
	internalLocal, externalLocal bool
}{
	{app{"both-cluster", 21}, false, false},
	{app{"internal-local", 22}, true, false},
	{app{"external-local", 23}, false, true},
	{app{"both-local", 24}, true, true},
}

// TestPacketMatrix dials every kind of frontend of Services with every pair of policies, from a pod, from the node and
// from another host, over every protocol in both families. It checks which endpoints respond and which client they see.
func TestPacketMatrix(t *testing.T) {
	inMode := func(traffic ruleset.LocalTraffic) ruleset.Config {
		config := clusterCIDR()
		config.LocalTraffic = traffic
		return config
	}
	masquerading := func(config ruleset.Config) ruleset.Config {
		config.MasqueradeAll = true
		return config
	}
	tests := map[string]struct {
		setup setup
		rows  []row
	}{
		"ClusterCIDR":   {setup{config: clusterCIDR()}, withDetector},
		"NodeCIDR":      {setup{config: inMode(ruleset.LocalTraffic{PodCIDRs: true})}, withDetector},
		"no detector":   {setup{config: withoutDetector()}, noDetector},
		"masqueradeAll": {setup{config: masquerading(clusterCIDR())}, masqueradeAll},
		"BridgeInterface": {
			setup{config: inMode(ruleset.LocalTraffic{Interface: fabric.PodBridge}), bridged: true}, withDetector},
		"InterfaceNamePrefix": {
			setup{config: inMode(ruleset.LocalTraffic{InterfacePrefix: fabric.PodLinkPrefix})}, withDetector},
		"masqueradeAll without a detector": {
			setup{config: masquerading(withoutDetector())}, masqueradeAllNoDetector},
		"masqueradeAll with BridgeInterface": {
			setup{config: masquerading(inMode(ruleset.LocalTraffic{Interface: fabric.PodBridge})), bridged: true}, masqueradeAll},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.setup.nodes = 2
			testMatrix(t, setUp(t, test.setup), test.rows)
		})
	}
}

func testMatrix(t *testing.T, c *cluster, rows []row) {
	t.Helper()
	node := c.nodes[0]
	near, far := c.addServer(node, "near"), c.addServer(c.nodes[1], "far")
	client, host := c.addPod(node, "client"), c.addHost("host", node)
	for _, p := range policies {
		c.apply(p.app.service(p.app.withEverything, func(s *model.Service) {
			s.InternalTrafficLocal, s.ExternalTrafficLocal = p.internalLocal, p.externalLocal
		}).Merge(p.app.endpoints(near, far)))
	}
	for _, row := range rows {
		for _, p := range policies {
			if governing := map[bool]bool{false: p.internalLocal, true: p.externalLocal}[row.isExternal()]; governing != row.isLocal {
				continue
			}
			to := p.app.paths(node, row.kinds...)
			desc := row.String() + " (" + p.app.name + ")"
			expect(t, desc, []*fabric.Namespace{client.Namespace}, to, row.pod.expectation(node, near, far))
			expect(t, desc, []*fabric.Namespace{node.Namespace}, to, row.node.expectation(node, near, far))
			expect(t, desc, []*fabric.Namespace{host}, to, row.host.expectation(node, near, far))
		}
	}
}

// TestAPodOfAnotherNodeIsOutsideInNodeCIDRMode checks the only difference from ClusterCIDR.
func TestAPodOfAnotherNodeIsOutsideInNodeCIDRMode(t *testing.T) {
	config := clusterCIDR()
	config.LocalTraffic = ruleset.LocalTraffic{PodCIDRs: true}
	c := setUp(t, setup{nodes: 2, config: config})
	near, far := c.addServer(c.nodes[0], "near"), c.addServer(c.nodes[1], "far")
	otherPod := c.addPod(c.nodes[1], "stranger")
	c.apply(web.service(web.withNodePorts, externalLocal).Merge(web.endpoints(near, far)))
	expect(t, "a pod of another node dials this node's port", []*fabric.Namespace{otherPod.Namespace},
		web.paths(c.nodes[0], model.NodePort), local.expectation(c.nodes[0], near, far))
}
