//go:build linux

// Package probe finds out which nodes do not answer this one: it looks at connections without an answer, dials the nodes of
// their endpoints, and has package reachability decide.
//
// A dial is a TCP connection to the port of the proxies' own /healthz at the node's address. It says nothing, and is reset
// at once. A node that only refuses it answers, too. Nothing is dialled for nothing: each node with an endpoint once within
// a minute and then once an hour, and otherwise those that are suspected, a few beside them, and those that are out.
package probe
