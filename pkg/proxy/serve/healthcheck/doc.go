//go:build linux

// Package healthcheck answers the load balancers that ask, at a Service's healthCheckNodePort, whether this node has
// endpoints of it (KEP-2086). Each Service with externalTrafficPolicy: Local of type LoadBalancer has a server of its
// own in each family.
package healthcheck
