//go:build linux

// Package probe feeds the failure detectors of package reachability, one per IP family: it lists unreplied connections,
// and probes the nodes of their endpoints.
//
// A probe is a TCP connection to a node's address. It sends no data and is reset at once. A node that refuses the
// connection has replied, too. Probes are few: each node with a proxy is probed within a minute and then once an hour.
// Beyond that, only suspected nodes, a few control nodes, and ejected nodes are probed.
//
// To change which connections count as unreplied or replied, see scan.go. What counts as a reply is in dial.go, and
// scan intervals and targets are in prober.go.
package probe
