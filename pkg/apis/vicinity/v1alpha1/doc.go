// Package v1alpha1 defines the custom resources of vicinity.dev/v1alpha1. Publishers in the webhook write them, and
// proxies read them.
//
//   - ServiceDemand is the measured demand of a Service. Proxies plan load bounds with it for Services that request it
//     (`vicinity.dev/demand-source: measured`). An object has the name and Namespace of its Service and is owned by it,
//     so that both are deleted together. It affects only that Service.
//   - TopologySlice is the topology of nodes. Proxies read it instead of watching every Node of a large cluster. Like
//     EndpointSlice, each object describes some of the nodes, and together they describe all.
//
// # The Leases
//
// A Lease of each publisher states that all its objects together were correct at its renewTime. The publisher of
// ServiceDemands renews it only while nearly all nodes report. If it was not renewed for DemandFreshFor, the objects are
// no longer used, and demand is assumed. The publisher of TopologySlices renews it only while it watches Nodes and has
// nothing left to write. So one small object tells readers whether there is a publisher, that the first publication is
// complete, and how old the newest data may be.
package v1alpha1
