//go:build linux

// Package accounting counts the connections that our tables translated, and their bytes, by the proximity of their
// endpoint and by the topology tier that selected it.
//
// Conntrack itself counts bytes. A connection is counted when the kernel reports its DESTROY event; a long one is also
// counted in a dump once a minute. This needs neither rules nor packets.
//
// Package serviceindex attributes connections to Services, Counters adds them up, and Run reads from the kernel. To
// change what counts as a connection or as bytes, and when, see flowtracker.go; the number of series per Service,
// services.go; the reasons why connections are not counted, missed.go; dumps and events, run.go.
package accounting
