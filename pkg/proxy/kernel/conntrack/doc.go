//go:build linux

// Package conntrack reads the kernel's connection table: all TCP, UDP and SCTP connections that this machine tracks,
// translated or not, in both families.
//
// It lists entries, filtered by the kernel where possible. It deletes an entry by its key, or only while it is
// unreplied (unreplied.go), and reports which entries end. DumpScheduler shares dumps among all users, and limits their
// CPU time (scheduler.go).
//
// It has no notion of Services: package conntrackgc decides which entries are stale.
package conntrack
