//go:build linux

// Package serviceindex maps each frontend to its Service, the endpoints that may serve its connections, and their
// placement. It retains removed frontends and endpoints for ten minutes. It is a handler of the proxy's decisions.
//
// Code that reads the connection table looks up each entry here, from any goroutine: a lookup never waits for a sync,
// and no sync waits for a lookup. The changes of one sync become visible together. The cost of a sync is proportional
// to its changes, not to the number of frontends.
//
// index.go decides which endpoints and frontends count as removed, and which UDP frontends as changed. attribution.go
// decides to which Service a connection belongs, and whether our tables translated it.
package serviceindex
