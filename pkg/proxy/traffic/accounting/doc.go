//go:build linux

// Package accounting counts the connections that our tables translated, and the bytes that they moved, by where their
// endpoint is seen from this node, and by why they went there.
//
// Conntrack counts bytes by itself. A connection that ends is counted when the kernel reports its end, and one that
// lasts is counted in a dump once a minute. Neither rules nor packets are involved.
//
// Package serviceindex knows which Service a connection belongs to, a Ledger adds up, and Run asks the kernel.
package accounting
