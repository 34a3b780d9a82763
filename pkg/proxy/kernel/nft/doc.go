//go:build linux

// Package nft is the edge to the kernel's nf_tables: it puts a ruleset.Batch into the kernel as one netlink
// transaction, reads back the little that must be read, and notices when another process touches our tables.
//
// It is the only importer of github.com/google/nftables, and uses only its encoding of expressions. Messages are built
// here because the library costs five allocations for each element, cannot write what nft needs to list a set readably,
// and cannot say which object an error belongs to.
package nft
