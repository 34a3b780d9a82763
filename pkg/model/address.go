package model

import (
	"fmt"
	"net/netip"
)

// Family is an IP family. Each has a table of its own in the kernel, and a Service port is decided once for each.
type Family uint8

// The families, in the order in which they are shown.
const (
	IPv4 Family = iota
	IPv6
)

// Families lists every family.
var Families = []Family{IPv4, IPv6}

// FamilyOf returns the family of an address.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// FamilyOfPrefix returns the family of a prefix.
func FamilyOfPrefix(prefix netip.Prefix) Family { return FamilyOf(prefix.Addr()) }

// String returns Kubernetes' own name of the family, as in spec.ipFamilies.
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// Protocol is an IANA protocol number, the value that nft calls `meta l4proto`.
type Protocol uint8

// The protocols a Service port may have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// Protocols lists every protocol.
var Protocols = []Protocol{TCP, UDP, SCTP}

// String returns Kubernetes' name of the protocol.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}
