//go:build linux

// Package accounting counts the connections that our tables translated, and the bytes that they moved, by where their
// endpoint is seen from this node, and by why they went there.
//
// Conntrack counts bytes by itself. What ends is counted when the kernel says so, and what lasts is counted in a dump once
// a minute. No rule and no packet knows of it.
//
// Package owners knows whose a connection is, a Ledger adds up, and Run asks the kernel.
package accounting
