// Package selection decides which endpoints of a Service port this node uses, and why.
//
// It is a function of values: the Service's policy, the usable endpoints, and the deciding node. It uses no clock, log,
// metric, Kubernetes type or nftables object. Every outcome carries a Reason, which explain, metrics and events print.
//
// The choice of endpoints is in select.go, keys.go, hints.go and local.go, its reasons in reason.go. bounded.go turns a
// load bound into a choice; planner.go finds the demand of Nodes and clients that a bound is planned with, and loads.go
// compares measured with assumed demand for explain. The endpoints that may continue to serve connections are in
// allowed.go, the tier of a connection in tierof.go, the tiers for xDS clients in tiers.go, the DNS endpoints of
// headless Services in headless.go, and the result of a load balancer's health check in healthcheck.go. findings.go
// reports what a Service requests but does not get. Packages that derive state from decisions implement Handler
// (handler.go); pkg/proxy/syncer/handlers.go calls them.
package selection
