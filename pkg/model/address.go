package model

import (
	"fmt"
	"net/netip"
)

// Family is an IP family. Each family has its own kernel table, and each Service port is decided once per family.
type Family uint8

// The families, in display order.
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

// String returns the family's name in the Kubernetes API, as in spec.ipFamilies.
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// Protocol is an IANA protocol number, the value of nft's `meta l4proto`.
type Protocol uint8

// The protocols of Service ports.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// Protocols lists every protocol.
var Protocols = []Protocol{TCP, UDP, SCTP}

// String returns the protocol's name in the Kubernetes API.
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
