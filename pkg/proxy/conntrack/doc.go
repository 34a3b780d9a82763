//go:build linux

// Package conntrack reads the kernel's connection table: all connections that this machine has translated or merely
// seen, of TCP, UDP and SCTP, in both families.
//
// It lists entries, as far as it can let the kernel filter them. It deletes an entry by its key, and tells which ended.
// Looks has one goroutine make all the lists, within a share of a processor.
//
// It knows nothing of Services. What becomes of a connection, others decide: package flows ends those that lead nowhere.
package conntrack
