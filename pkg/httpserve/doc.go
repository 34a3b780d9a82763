// Package httpserve runs the proxy's small HTTP servers: it sets timeouts for clients, limits the number of
// connections, and lets active requests finish at shutdown (httpserve.go). Other servers also use its bounded listener
// (bounded.go) and its retry loop (Retry).
package httpserve
