package selection

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Scope is what addresses mean on this node.
type Scope struct {
	// Pods are the ranges of the pods' addresses. In a family without a range a pod is not recognized by its address.
	Pods []netip.Prefix
	// Local are the addresses of this node's interfaces.
	Local []netip.Addr
	// NodePorts are those of them on which node ports are served.
	NodePorts []netip.Addr
}

// ScopeOf returns the scope of the cluster's own node.
func ScopeOf(cluster *model.Cluster, nodePorts model.NodePortAddresses, pods []netip.Prefix) Scope {
	scope := Scope{Pods: pods, Local: cluster.LocalAddrs()}
	for _, family := range model.Families {
		if !nodePorts.All(family) {
			scope.NodePorts = append(scope.NodePorts, nodePorts.Choose(family, cluster.Self(), scope.Local)...)
			continue
		}
		for _, addr := range scope.Local {
			if model.FamilyOf(addr) == family && !addr.IsLoopback() {
				scope.NodePorts = append(scope.NodePorts, addr)
			}
		}
	}
	return scope
}

// ServesNodePorts reports whether a node port can be dialled on the address.
func (s Scope) ServesNodePorts(addr netip.Addr) bool { return slices.Contains(s.NodePorts, addr) }

// Place is where a client is, as far as its address shows.
type Place uint8

// The places.
const (
	Outside   Place = iota // neither of the following
	Inside                 // it is this node, or a pod
	Uncertain              // it is not this node, and it is unknown whether it is a pod
)

// PlaceOf returns where the client with an address is.
func (s Scope) PlaceOf(client netip.Addr) Place {
	if client.IsLoopback() || slices.Contains(s.Local, client) {
		return Inside
	}
	place := Uncertain
	for _, pods := range s.Pods {
		switch {
		case pods.Contains(client):
			return Inside
		case model.FamilyOfPrefix(pods) == model.FamilyOf(client):
			place = Outside
		}
	}
	return place
}
