// Package drift compares the kernel's tables with the desired ones.
//
// Desired computes the desired tables of a node in memory: they are a function of the cluster's state. Run reads that
// state and the kernel itself, and returns the differences. The running proxy's mirror of the kernel is not used. Node
// adds the state that the proxy reports, and Text writes all of it for people.
//
// Where to make a change: what counts as a difference is in pkg/proxy/ruleset/differences.go and
// pkg/proxy/kernel/nft/reader.go. The requests to all proxies are in pkg/proxy/serve/status/clusterstatus.
package drift
