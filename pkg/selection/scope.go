package selection

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Scope is what addresses mean on this node. The kernel is asked which ones are the node's own: see IsLocal.
type Scope struct {
	// Pods are the ranges of the pods' addresses. In a family without a range a pod is not recognized by its address.
	Pods []netip.Prefix
	// NodePorts are the addresses on which node ports are served, in the families of the tables that OnAll lacks.
	NodePorts []netip.Addr
	// OnAll are the families whose node ports are served on every address of the node but loopback.
	OnAll []model.Family
}

// IsLocal reports whether an address is the node's own. The kernel answers, as it does for the tables: a list of the
// interfaces' addresses lacks those that are local only by a route, and lags behind.
type IsLocal func(netip.Addr) (bool, error)

// ScopeOf returns the scope of the cluster's own node, in some families.
func ScopeOf(cluster *model.Cluster, families []model.Family, nodePorts model.NodePortAddresses, pods []netip.Prefix) Scope {
	scope := Scope{Pods: pods}
	for _, family := range families {
		if nodePorts.All(family) {
			scope.OnAll = append(scope.OnAll, family)
			continue
		}
		scope.NodePorts = append(scope.NodePorts, nodePorts.Choose(family, cluster.Self(), cluster.LocalAddrs())...)
	}
	return scope
}

// ServesNodePorts reports whether a node port can be dialled on the address.
func (s Scope) ServesNodePorts(addr netip.Addr, isLocal IsLocal) (bool, error) {
	switch {
	case !slices.Contains(s.OnAll, model.FamilyOf(addr)):
		return slices.Contains(s.NodePorts, addr), nil
	case addr.IsLoopback():
		return false, nil
	}
	return isLocal(addr)
}

// MayServeNodePorts is ServesNodePorts without asking the kernel: where node ports are served on every address of the
// node, any address but loopback may be one of them.
func (s Scope) MayServeNodePorts(addr netip.Addr) bool {
	serves, _ := s.ServesNodePorts(addr, func(netip.Addr) (bool, error) { return true, nil })
	return serves
}

// ClientOrigin is where a client is, as far as its address shows.
type ClientOrigin uint8

// The places.
const (
	External      ClientOrigin = iota // neither of the following
	Internal                          // it is this node, or a pod
	UnknownOrigin                     // it is not this node, and it is unknown whether it is a pod
)

// OriginOf returns where the client with an address is.
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
