//go:build linux

// Package interfaces reports the addresses of the machine's network interfaces, and their changes (watch.go). Node
// ports are served on some of them. It also queries whether an address is the machine's own, even without an interface
// (routes.go), and which neighbours have no link-layer address (neighbours.go).
package interfaces
