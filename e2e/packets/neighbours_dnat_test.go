package packets_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// foreignDNATRules is a table of one family that translates connections to some addresses and ports before the proxy does, like
// a CNI's host ports or a manual port forwarding. Its rules occur twice: for packets from other machines and for
// packets of the node.
const foreignDNATRules = `
table %[1]s intruder {
	chain others {
		type nat hook prerouting priority dstnat - 1; policy accept;
		%[2]s
	}
	chain node {
		type nat hook output priority -101; policy accept;
		%[2]s
	}
}
`

// addForeignDNAT translates connections over some paths to a pod, until the returned function is called.
func addForeignDNAT(t *testing.T, n *node, to []path, server *pod) func() {
	t.Helper()
	families := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}
	input, cleanup := "", ""
	for _, family := range model.Families {
		var rules []string
		for _, p := range to {
			if p.family() == family {
				rules = append(rules, fmt.Sprintf("%s daddr %s %s dport %d dnat to %s",
					families[family], p.addr.Addr(), p.network, p.addr.Port(), netip.AddrPortFrom(addrOf(server.Namespace, family), podPort)))
			}
		}
		input += fmt.Sprintf(foreignDNATRules, families[family], strings.Join(rules, "\n\t\t"))
		cleanup += fmt.Sprintf("delete table %s intruder\n", families[family])
	}
	runNFT(t, n, input, "-f", "-")
	return func() {
		t.Helper()
		runNFT(t, n, cleanup, "-f", "-")
	}
}

// TestForeignTranslationsAreNotRemembered checks that a connection that another table translated to a pod, over a
// frontend of a Service with session affinity, records no affinity. The pod serves on the port of the Service's
// endpoints.
func TestForeignTranslationsAreNotRemembered(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string]model.NodePortAddresses{
		"node ports on the node's own addresses": {Primary: true},
		"node ports on all addresses":            {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNodePorts(t, addresses)
			foreign := n.addServer(n.node, "foreign")
			for number, kind := range slices.Concat([]model.FrontendKind{model.NodePort}, allKinds) {
				// Each path has its own Service, because existing affinity hides whether a connection records a new one.
				backend := app{fmt.Sprintf("own-%d", number), byte(61 + number)}
				n.apply(backend.service(backend.withEverything, affinity(affinityHour)).Merge(backend.endpoints(n.near, n.far)))
				desc, translated := "another address, with the node port's number", pathsTo(backend.nodePort(), secondAddrs...)
				if number > 0 {
					desc, translated = kind.String(), backend.paths(n.node, kind)
				}
				remove := addForeignDNAT(t, n.node, translated, foreign)
				expect(t, desc+" is translated by another table", n.clients(), translated, servedBy("foreign"))
				remove()
				for range 2 {
					expect(t, desc+" was translated by another table", n.clients(), backend.paths(n.node, allKinds...), servedByOneOf("near", "far"))
				}
			}
		})
	}
}

// TestForeignTranslationsAreNotMasqueraded checks that the server sees the client of a connection that another table
// translated, whichever of our frontends was dialled, and even if the pod is an endpoint of the Service.
func TestForeignTranslationsAreNotMasqueraded(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string]model.NodePortAddresses{
		"node ports on the node's own addresses": {Primary: true},
		"node ports on all addresses":            {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNodePorts(t, addresses)
			translated := append(web.paths(n.node, allKinds...), pathsTo(web.nodePort(), secondAddrs...)...)
			foreign := n.addServer(n.node, "foreign")
			for _, edit := range []func(*model.Service){
				func(*model.Service) {},
				func(s *model.Service) { internalLocal(s); externalLocal(s) },
				affinity(affinityHour),
			} {
				n.apply(service(web.withEverything, edit).Merge(endpoints(n.near)))
				for _, server := range []*pod{foreign, n.near} {
					remove := addForeignDNAT(t, n.node, translated, server)
					expect(t, "another table translates to "+server.Name, n.clients(), translated, sourceKept)
					remove()
				}
			}
		})
	}
}

// sourceKept expects that the server sees the client's own address and port.
func sourceKept(from *fabric.Namespace, to path) error {
	reply, err := from.Request(to.network, to.addr, fabric.Timeout)
	if err == nil && reply.Client != reply.Local {
		return fmt.Errorf("%s saw %s, want %s", reply.Pod, reply.Client, reply.Local)
	}
	return err
}

// servedByOneOf expects a response from one of the given servers.
func servedByOneOf(names ...string) expectation {
	return func(from *fabric.Namespace, to path) error {
		reply, err := from.Request(to.network, to.addr, fabric.Timeout)
		if err == nil && !slices.Contains(names, reply.Pod) {
			return fmt.Errorf("%s replied, want one of %v", reply.Pod, names)
		}
		return err
	}
}
