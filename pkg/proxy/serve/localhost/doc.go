//go:build linux

// Package localhost serves TCP node ports on the node's loopback addresses (KEP-6032). The kernel
// translates no connection from loopback to another node, so this process accepts it, dials an endpoint, and passes on
// what both send. Such a connection ends with the process.
package localhost
