//go:build linux

// Package interfaces reports which addresses the machine's network interfaces have, and when that changes. Node ports
// are served on some of them.
package interfaces
