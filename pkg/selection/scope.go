package selection

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Scope is the meaning of addresses on this node. It does not include the node's own addresses: see IsLocal.
type Scope struct {
	// Pods are the address ranges of pods. In a family without a range, pods are not recognized by their addresses.
	Pods []netip.Prefix
	// NodePorts are the addresses that serve node ports, in the families of the tables that are not in AllAddrFamilies.
	NodePorts []netip.Addr
	// AllAddrFamilies are the families in which every address of the node except loopback serves node ports.
	AllAddrFamilies []model.Family
}

// IsLocal reports whether an address is the node's own. The kernel decides, as it does for the tables: a list of the
// interfaces' addresses lacks those that are local only by a route, and lags behind.
type IsLocal func(netip.Addr) (bool, error)

// ScopeOf returns the scope of the cluster's own node in some families.
func ScopeOf(cluster *model.Cluster, families []model.Family, nodePorts model.NodePortAddresses, pods []netip.Prefix) Scope {
	scope := Scope{Pods: pods}
	for _, family := range families {
		if nodePorts.All(family) {
			scope.AllAddrFamilies = append(scope.AllAddrFamilies, family)
			continue
		}
		scope.NodePorts = append(scope.NodePorts, nodePorts.Choose(family, cluster.Self(), cluster.LocalAddrs())...)
	}
	return scope
}

// ServesNodePorts reports whether an address accepts connections to node ports.
func (s Scope) ServesNodePorts(addr netip.Addr, isLocal IsLocal) (bool, error) {
	switch {
	case !slices.Contains(s.AllAddrFamilies, model.FamilyOf(addr)):
		return slices.Contains(s.NodePorts, addr), nil
	case addr.IsLoopback():
		return false, nil
	}
	return isLocal(addr)
}

// MayServeNodePorts is ServesNodePorts without a kernel lookup: where node ports are served on every address of the
// node, any address but loopback may be one of them.
func (s Scope) MayServeNodePorts(addr netip.Addr) bool {
	serves, _ := s.ServesNodePorts(addr, func(netip.Addr) (bool, error) { return true, nil })
	return serves
}

// ClientOrigin is the origin of a client, to the extent that its address shows it.
type ClientOrigin uint8

// The origins.
const (
	External      ClientOrigin = iota // neither of the following
	Internal                          // this node, or a pod
	UnknownOrigin                     // not this node, and possibly a pod
)

// OriginOf returns the origin of the client with an address.
func (s Scope) OriginOf(client netip.Addr, isLocal IsLocal) (ClientOrigin, error) {
	origin := UnknownOrigin
	for _, pods := range s.Pods {
		switch {
		case pods.Contains(client):
			return Internal, nil
		case model.FamilyOfPrefix(pods) == model.FamilyOf(client):
			origin = External
		}
	}
	if client.IsLoopback() {
		return Internal, nil
	}
	local, err := isLocal(client)
	if local {
		return Internal, nil
	}
	return origin, err
}
