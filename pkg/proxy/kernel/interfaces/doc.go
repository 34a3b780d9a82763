//go:build linux

// Package interfaces reports which addresses the machine's network interfaces have, and when that changes. Node ports
// are served on some of them. And it asks the kernel whether an address is the machine's own, which needs no interface,
// and which neighbours have no link-layer address.
package interfaces
