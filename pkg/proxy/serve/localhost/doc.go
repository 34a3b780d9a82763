//go:build linux

// Package localhost serves TCP node ports on the node's loopback addresses (KEP-6032). The kernel does not translate
// connections from loopback to another node. So this process accepts them, connects to an endpoint, and forwards data
// in both directions. Such a connection ends with the process.
//
// Which node ports are served, and where they lead, is in target.go and model/node.go; limits on connections are in
// connlimiter.go. Which packets to node ports on loopback are refused is in proxy/ruleset/layout.go.
package localhost
