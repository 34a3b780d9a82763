//go:build linux

// Package owners knows which Service owns each frontend, who may answer its connections, and where the endpoints are; and for
// ten minutes, who owned it and where they were. It is a reader of the proxy's decisions.
//
// Whoever reads the connection table asks it about each entry, from any goroutine: it never waits for a sync, and no sync
// waits for it. What it is told together, by one sync, it knows together. A sync costs what changes, and not what is there.
package owners
