// Package httpserve runs the proxy's small HTTP servers alike: it bounds every wait for a client and the number of
// connections, and lets running answers finish at the end. Its bounded listener, and its loop that listens again, are for
// other servers, too.
package httpserve
