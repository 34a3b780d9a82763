// Package ruleset says what the nftables tables should hold: the static chains and sets, the elements that each
// Service owns, and the batch of operations that leads from what the kernel holds to what is wanted.
//
// Everything here is a value or a function of values. It knows how nft would write each thing (text.go), and nothing
// of netlink, Kubernetes, clocks or logs. Package nft puts a Batch into the kernel; Tables does the same in memory.
package ruleset
