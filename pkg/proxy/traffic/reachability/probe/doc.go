//go:build linux

// Package probe finds out which nodes do not reply to this one: it lists connections without a reply, probes the nodes of
// their endpoints, and has package reachability decide, in each IP family.
//
// A probe is a TCP connection to a node's address. It sends nothing, and is reset at once. A node that refuses it has
// replied, too. Probes are few: each node with a proxy is probed within a minute and then once an hour; beyond that
// only nodes that are suspected, a few others as controls, and nodes that are ejected.
package probe
