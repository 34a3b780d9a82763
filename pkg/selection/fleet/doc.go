// Package fleet says where the connections of all nodes go, to one Service port: which share of them stays near, and
// what each endpoint expects.
//
// Package selection decides, once for all nodes that must decide alike. The cost is a sum of the nodes' groups, the
// endpoints and their hints, times the keys of the one Service. Only a plan by hostname costs nodes that host endpoints
// times endpoints: 5,000 of both take about half a second for each bound.
package fleet
