package ruleset

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Config is the administrator's settings for the tables.
type Config struct {
	// Families are the families that get a table.
	Families []model.Family
	// LocalTraffic distinguishes this node's pods from other clients.
	LocalTraffic LocalTraffic
	// MasqueradeAll masquerades every connection to a ClusterIP, also those of pods.
	MasqueradeAll bool
	// NodePorts selects the addresses on which node ports are served.
	NodePorts model.NodePortAddresses
}

// LocalTraffic distinguishes the pods' packets from all others, like kube-proxy's detectLocalMode. At most one of the
// three ways is set. In a family without one, pods are not recognized: traffic to ClusterIPs is never masqueraded, and
// pods that dial an external address count as clients from outside.
type LocalTraffic struct {
	// Prefixes are the pods' addresses, at most one prefix a family: modes ClusterCIDR and NodeCIDR.
	Prefixes []netip.Prefix
	// PodCIDRs is set if the prefixes are those in this node's own object, and follow it: mode NodeCIDR.
	PodCIDRs bool
	// Interface is the bridge through which the pods' packets arrive: mode BridgeInterface.
	Interface string
	// InterfacePrefix starts the names of all links through which the pods' packets arrive: mode InterfaceNamePrefix.
	InterfacePrefix string
}

// NodeState is the input of the tables that concerns the node as a whole, not a single Service.
type NodeState struct {
	// NodePortAddrs are the addresses on which node ports are served, sorted. A family in which all local addresses serve
	// them has none here.
	NodePortAddrs []netip.Addr
	// ServiceCIDRs are the ranges from which ClusterIPs are allocated, sorted. Packets to an address in them that no
	// Service has are dropped.
	ServiceCIDRs []netip.Prefix
}

// matchNotFromPods returns matches that fail for a packet from a pod of this cluster that the detector recognizes;
// none if the family has no detector.
//
// On a bridge, br_netfilter passes packets through postrouting without their input interface. Such packets go from one
// pod to another, so a packet without an input interface counts as a pod's. The node's own packets have none either:
// another match distinguishes them.
func (l LocalTraffic) matchNotFromPods(family model.Family, source Field) []Statement {
	switch {
	case l.Interface != "":
		return []Statement{FromInterface{}, NotFromInterface{Name: l.Interface}}
	case l.InterfacePrefix != "":
		return []Statement{FromInterface{}, NotFromInterface{Name: l.InterfacePrefix, Prefix: true}}
	}
	for _, prefix := range l.Prefixes {
		if model.FamilyOfPrefix(prefix) == family {
			return []Statement{InPrefix{Field: source, Prefix: prefix, Not: true}}
		}
	}
	return nil
}

// detectsByInterface reports whether pods are recognized by the interface through which their packets arrive.
func (l LocalTraffic) detectsByInterface() bool { return l.Interface != "" || l.InterfacePrefix != "" }

// matchOutside returns the matches that only packets from outside pass: neither from a pod nor from this node. They
// have the same meaning in every hook, before the source is translated.
func (c Config) matchOutside(family model.Family) Rule {
	return append(c.LocalTraffic.matchNotFromPods(family, SourceAddr), IsLocal{Field: SourceAddr, Not: true})
}
