//go:build linux

// Package flows says where a node's connections go at this moment: from one reading of conntrack, by Service,
// endpoint and tier. Nothing is kept.
package flows
