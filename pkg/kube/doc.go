// Package kube connects to an API server (connection.go), tracks its addresses (peers.go), and redirects client-go's
// log.
package kube
