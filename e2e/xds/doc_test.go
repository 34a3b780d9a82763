// Package xds checks what the proxy tells by xDS against judges that others wrote: Envoy's own types, and clients with
// grpc-go. Their programs are in e2e/lab/build/xds.
package xds
