package ruleset

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Config is what the node's administrator chose about the tables.
type Config struct {
	// Families are the families that get a table.
	Families []model.Family
	// LocalTraffic distinguishes this node's pods from other clients.
	LocalTraffic LocalTraffic
	// MasqueradeAll masquerades every connection to a ClusterIP, also those of pods.
	MasqueradeAll bool
	// NodePorts says on which addresses node ports are served.
	NodePorts model.NodePortAddresses
}

// LocalTraffic distinguishes the pods' packets from all others: kube-proxy's detectLocalMode. At most one of the three
// ways is set. In a family without one, pods are not recognized: traffic to ClusterIPs is never masqueraded, and pods
// that dial an external address count as outside.
type LocalTraffic struct {
	// Prefixes are the pods' addresses, at most one prefix a family: modes ClusterCIDR and NodeCIDR.
	Prefixes []netip.Prefix
	// PodCIDRs: the prefixes are those in this node's own object, and follow it: mode NodeCIDR.
	PodCIDRs bool
	// Interface is the bridge that the pods' packets come in by: mode BridgeInterface.
	Interface string
	// InterfacePrefix begins the names of all links that the pods' packets come in by: mode InterfaceNamePrefix.
	InterfacePrefix string
}

// NodeState are what the tables hold for the node as a whole, not for a single Service.
type NodeState struct {
	// NodePortAddrs are the addresses on which node ports are served, sorted; none of a family where all local addresses
	// serve them.
	NodePortAddrs []netip.Addr
	// ServiceCIDRs are the ranges from which ClusterIPs are taken, sorted. What is sent to an address in them that no
	// Service has is dropped.
	ServiceCIDRs []netip.Prefix
}

// notFromPods returns tests that fail for a packet from a pod of this cluster, as far as the detector recognizes it; no
// tests without a detector for the family.
//
// On a bridge, br_netfilter leads packets through postrouting without their input interface. Such packets go from one
// pod to another, so a packet without an input interface counts as a pod's. The node's own packets have none either:
// another test tells them apart.
func (l LocalTraffic) notFromPods(family model.Family, source Field) []Statement {
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

// byInterface reports whether pods are recognized by the interface that their packets come by.
func (l LocalTraffic) byInterface() bool { return l.Interface != "" || l.InterfacePrefix != "" }

// outside returns the tests that only packets from outside pass: neither from a pod nor from this node. It means the
// same in every hook, before the source is translated.
func (c Config) outside(family model.Family) Rule {
	return append(c.LocalTraffic.notFromPods(family, SourceAddr), IsLocal{Field: SourceAddr, Not: true})
}
