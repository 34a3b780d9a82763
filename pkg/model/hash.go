package model

import "net/netip"

// The constants of 32-bit FNV-1a. Package hash/fnv is not used because it would allocate for each endpoint.
const (
	fnvOffset = 2166136261
	fnvPrime  = 16777619
)

// HashOfAddr returns the FNV-1a hash of an address, as 16 bytes, and a port. A caller that uses only some of the bits
// must mix them first: addresses that differ in their last byte have similar hashes.
func HashOfAddr(addr netip.AddrPort) uint32 {
	hash := uint32(fnvOffset)
	for _, b := range addr.Addr().As16() {
		hash = (hash ^ uint32(b)) * fnvPrime
	}
	hash = (hash ^ uint32(addr.Port()>>8)) * fnvPrime
	return (hash ^ uint32(addr.Port()&0xff)) * fnvPrime
}

// Hash returns the FNV-1a hash of namespace/name. See HashOfAddr.
func (n ObjectName) Hash() uint32 {
	hash := uint32(fnvOffset)
	for i := range len(n.Namespace) {
		hash = (hash ^ uint32(n.Namespace[i])) * fnvPrime
	}
	hash = (hash ^ '/') * fnvPrime
	for i := range len(n.Name) {
		hash = (hash ^ uint32(n.Name[i])) * fnvPrime
	}
	return hash
}
