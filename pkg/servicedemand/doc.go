// Package servicedemand is the custom resource that says what is asked of a Service: ServiceDemand, of vicinity.dev/v1alpha1. A
// publisher beside the webhook sums up what proxies count and writes it; proxies read it, and plan the bounds on load with it of
// Services whose owners asked for that (`vicinity.dev/clients: "measured"`).
//
// An object is called like its Service, is in its Namespace, and is owned by it, so that it goes with it. It concerns that
// Service alone.
//
// # The Lease
//
// A Lease beside the publisher says that what the objects say together was true at its renewTime. The publisher renews it only
// while it hears nearly all nodes. Once it has not been renewed for as long as it is good, the objects no longer count, and
// demand is assumed.
package servicedemand
