//go:build linux

// Package serviceindex knows which Service owns each frontend, who may answer its connections, and where the endpoints are; and for
// ten minutes, who owned it and where they were. It is a reader of the proxy's decisions.
//
// Readers of the connection table ask it about each entry, from any goroutine: it never waits for a sync, and no sync
// waits for it. The changes of one sync become visible together. A sync costs what changes, and not what is there.
package serviceindex
