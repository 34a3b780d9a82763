package packets_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// TestExplainReportsForEveryAddressAndPortWhatTheRulesDo checks that `explain ADDRESS:PORT` predicts the outcome for
// frontends of Services and for other destinations, over each protocol.
func TestExplainReportsForEveryAddressAndPortWhatTheRulesDo(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string]model.NodePortAddresses{
		"node ports on the node's addresses": {Primary: true},
		"node ports on all addresses":        {},
		"node ports on other addresses":      {Prefixes: secondPrefixes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNodePorts(t, addresses)
			liftICMPLimits(t, n.node.Namespace)
			resolveLinkAddrs(t, []*fabric.Namespace{n.pod, n.node.Namespace}, n.near)
			streams := app{"streams", 11} // over TCP alone, on its own port, and with the node's address as an external IP
			withNode := func(s *model.Service) {
				streams.withEverything(s)
				s.Ports = s.Ports[:1]
				s.Ports[0].Port = servicePort + 2
				s.ExternalIPs = append(s.ExternalIPs, n.node.IPv4, n.node.IPv6)
			}
			inRange := []netip.Addr{netip.MustParseAddr("10.96.7.7"), netip.MustParseAddr("fd00:96::77")}
			n.apply(service(web.withEverything).Merge(streams.service(withNode)).Merge(streams.endpoints(n.near)).
				Merge(app{"none", 12}.service()).Merge(serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6)))
			addrs := append(inRange, n.node.IPv4, n.node.IPv6)
			for _, kind := range []model.FrontendKind{model.ClusterIP, model.ExternalIP, model.LoadBalancerIP} {
				addrs = append(append(addrs, web.addrs(kind)...), streams.addrs(kind)...)
			}
			addrs = append(addrs, app{"none", 12}.addrs(model.ClusterIP)...)
			seen := map[string]int{}
			for _, port := range []uint16{servicePort, servicePort + 1, servicePort + 2, web.nodePort(), streams.nodePort(), 30099} {
				for _, p := range overNetworks(pathsTo(port, addrs...), "tcp", "udp") {
					outcome := n.explained(p)
					seen[outcome]++
					expect(t, "explain predicts "+outcome, []*fabric.Namespace{n.pod, n.node.Namespace}, []path{p}, expectations[outcome])
				}
			}
			for outcome := range expectations {
				if seen[outcome] == 0 {
					t.Errorf("explain predicts %q for no dialled address: %v", outcome, seen)
				}
			}
		})
	}
}

// expectations are the checks for each outcome that explain predicts; none means that explain has no result.
var expectations = map[string]expectation{"balance": succeeds, "refuse": refused, "drop": timesOut, "none": notServed}

// explained returns the outcome that explain predicts for a pod's connection on the first node.
func (n *nodePorts) explained(p path) string {
	n.t.Helper()
	cluster := explain.ClusterView(n.state, n.node.Name, n.setup.config.NodePorts)
	ports := explain.Clients{NodePorts: n.setup.config.NodePorts}.Ports(cluster, explain.Query{AddrPort: p.addr})
	outcome := "none"
	for _, port := range ports {
		protocols := append(port.Protocols, port.Protocol)
		for _, protocol := range protocols {
			if protocol != map[string]string{"tcp": "TCP", "udp": "UDP"}[p.network] {
				continue
			}
			if outcome != "none" || len(port.Traffic) != 1 {
				n.t.Errorf("%s: explain reports it twice: %+v", p, ports)
			}
			outcome = port.Traffic[0].Outcome
		}
	}
	return outcome
}
