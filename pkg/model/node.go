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
}
