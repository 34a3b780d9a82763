//go:build linux

// Package conntrack reads the kernel's connection table: all connections that this machine has translated or merely
// seen, of TCP, UDP and SCTP, in both families.
//
// It lists entries, and lets the kernel filter them where it can. It deletes an entry by its key, or only while
// nobody has answered, and reports which ended. Looks has one goroutine make all the lists, within a share of a processor.
//
// It knows nothing of Services. Others decide what becomes of a connection: package conntrackgc ends those that lead nowhere.
package conntrack
