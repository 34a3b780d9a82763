// Package servicedemand defines the custom resource for the measured demand of a Service: ServiceDemand, of
// vicinity.dev/v1alpha1. A publisher in the webhook aggregates the counts of the proxies and writes it. Proxies read
// it, and plan load bounds with it for Services that request it (`vicinity.dev/demand-source: measured`).
//
// An object has the name and Namespace of its Service and is owned by it, so that both are deleted together. It affects
// only that Service.
//
// # The Lease
//
// The publisher's Lease states that all objects together were correct at its renewTime. The publisher renews it only
// while nearly all nodes report. If it was not renewed for FreshFor, the objects are no longer used, and demand is
// assumed.
package servicedemand
