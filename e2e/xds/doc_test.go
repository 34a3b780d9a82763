// Package xds tests the proxy's xDS server with independent implementations: Envoy's own types, and clients with
// grpc-go. Their programs are in e2e/lab/build/xds.
package xds
