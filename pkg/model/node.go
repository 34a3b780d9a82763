package model

import "net/netip"

// Node is what the proxy keeps of a v1 Node.
type Node struct {
	Name   string
	Labels map[string]string

	// Addresses are the node's own as its object names them, at most one a family: the first InternalIP, else the first
	// ExternalIP.
	Addresses []netip.Addr
	// PodCIDRs are the ranges of its pods' addresses, at most one a family: the first of spec.podCIDRs.
	PodCIDRs []netip.Prefix

	// Leaving is why load balancers should spare this node: it is being deleted, or about to be taken away. Empty: it stays. No
	// Service is decided differently for it.
	Leaving string
}
