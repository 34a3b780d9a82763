// Package httpserve runs the proxy's two small HTTP servers, health and metrics, alike: it binds their address at the
// start, where an error can still stop the program, bounds every wait for a client, and lets running answers finish at
// the end.
package httpserve
