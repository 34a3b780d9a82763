// Package xds holds what the proxy tells by xDS against judges that nobody here wrote: Envoy's own types, and clients with
// grpc-go. Their programs are in e2e/lab/build/xds.
package xds
