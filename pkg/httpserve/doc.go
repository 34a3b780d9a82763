// Package httpserve runs the proxy's small HTTP servers: it limits every wait for a client and the number of
// connections, and lets active requests finish at shutdown (httpserve.go). Other servers also use its bounded listener
// (bounded.go) and its loop that listens again.
package httpserve
