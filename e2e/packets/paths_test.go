package packets_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// networks are the protocols, by the fabric's names.
var networks = []string{"tcp", "udp", "sctp"}

// externalKinds are the frontends that externalTrafficPolicy governs.
var externalKinds = []model.FrontendKind{model.NodePort, model.ExternalIP, model.LoadBalancerIP}

// allKinds are all kinds of frontends.
var allKinds = append([]model.FrontendKind{model.ClusterIP}, externalKinds...)

// path is a way to dial a Service.
type path struct {
	network string
	addr    netip.AddrPort
}

func (p path) String() string { return p.network + " " + p.addr.String() }

// paths are all ways to dial the ClusterIPs of web: three protocols in two families.
var paths = pathsTo(servicePort, web.addrs(model.ClusterIP)...)

// pathsTo returns the paths to one port of some addresses, over all protocols.
func pathsTo(port uint16, addrs ...netip.Addr) []path {
	var all []path
	for _, addr := range addrs {
		for _, network := range networks {
			all = append(all, path{network, netip.AddrPortFrom(addr, port)})
		}
	}
	return all
}

// paths returns the ways to dial the Service by frontends of some kinds; it dials node ports on one node.
func (a app) paths(n *node, kinds ...model.FrontendKind) []path {
	var all []path
	for _, kind := range kinds {
		if kind == model.NodePort {
			all = append(all, pathsTo(a.nodePort(), n.IPv4, n.IPv6)...)
			continue
		}
		all = append(all, pathsTo(servicePort, a.addrs(kind)...)...)
	}
	return all
}

// family returns the family of the path.
func (p path) family() model.Family { return model.FamilyOf(p.addr.Addr()) }

// withPort returns the same path to another port.
func (p path) withPort(port uint16) path {
	return path{p.network, netip.AddrPortFrom(p.addr.Addr(), port)}
}

// clientAddr returns the client's own address in the path's family.
func (p path) clientAddr(client *fabric.Namespace) netip.Addr { return addrOf(client, p.family()) }

// single returns the prefix that contains only the given address.
func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func addrOf(n *fabric.Namespace, family model.Family) netip.Addr {
	if family == model.IPv4 {
		return n.IPv4
	}
	return n.IPv6
}

// overNetworks returns the paths over the given protocols.
func overNetworks(all []path, networks ...string) []path {
	return slices.DeleteFunc(slices.Clone(all), func(p path) bool { return !slices.Contains(networks, p.network) })
}

// mustRequest sends a request to the Service and returns the response.
func mustRequest(t *testing.T, client *fabric.Namespace, to path) fabric.Reply {
	t.Helper()
	reply, err := client.Request(to.network, to.addr, fabric.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
