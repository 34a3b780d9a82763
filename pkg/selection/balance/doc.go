// Package balance computes the share of a node's connections that each endpoint of a Service gets, so that as many as
// possible stay near and the expected load of each endpoint is within the load bound.
//
// The steps are NodeClasses (the Nodes with equal values of a list of topology keys), EndpointClasses (a Service's
// endpoints, classified in the same way), a Plan (the split for all nodes), a Share (one node's part of it), and slots
// (the share in whole numbers). All use integers only: the same Nodes and endpoints give the same result, bit for bit,
// in any order.
//
// The demand of nodes is in demand.go and nodeclasses.go, measured demand in measured.go. plan.go splits it over the
// endpoints, share.go computes one node's part, slots.go rounds it to slots, and loads.go computes the expected
// loads of endpoints, from all nodes together.
package balance
