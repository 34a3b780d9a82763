//go:build linux

// Package nft is the interface to the kernel's nf_tables: it commits a ruleset.Batch as one netlink transaction, reads
// back the little that must be read, and detects changes of our tables by other processes (watch.go).
//
// It is the only importer of github.com/google/nftables, and uses only its encoding of expressions. Messages are built
// here (encode_*.go; statements in statement.go) because the library costs five allocations for each element, cannot
// write what nft needs to list a set readably, and cannot attribute an error to an object. The attribution of errors is
// in commit.go, the comparison of the kernel's table with the desired one in reader.go.
package nft
