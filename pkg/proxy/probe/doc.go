//go:build linux

// Package probe finds out which nodes do not answer this one: it looks at connections without an answer, dials the nodes of
// their endpoints, and has package reachability decide.
//
// A dial is a TCP connection to the port of the proxies' own /healthz at the node's address. It sends nothing, and is
// reset at once. A node that refuses it has answered, too. Dials are few: each node with an endpoint is dialled within
// a minute and then once an hour; beyond that only nodes that are suspected, a few others as controls, and nodes that
// are out.
package probe
