//go:build linux

// Package healthcheck serves the health checks of load balancers: at a Service's healthCheckNodePort, it reports
// whether this node has endpoints of the Service (KEP-2086). Each Service of type LoadBalancer with
// externalTrafficPolicy: Local has a server of its own in each family.
//
// What a response contains is in selection/healthcheck.go and response.go; when and where it is served, in handler.go
// and assign.go.
package healthcheck
