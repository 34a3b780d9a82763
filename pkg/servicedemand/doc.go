// Package servicedemand is the custom resource for the measured demand of a Service: ServiceDemand, of
// vicinity.dev/v1alpha1. A publisher in the webhook sums up what proxies count and writes it; proxies read it, and plan
// bounds on load with it for Services whose owners asked for that (`vicinity.dev/demand-source: measured`).
//
// An object has the name and Namespace of its Service, and is owned by it, so that it is deleted with it. It concerns
// only that Service.
//
// # The Lease
//
// The publisher's Lease says that the objects together were true at its renewTime. The publisher renews it only while
// it hears nearly all nodes. Once it has not been renewed for as long as it is good, the objects no longer count, and
// demand is assumed.
package servicedemand
