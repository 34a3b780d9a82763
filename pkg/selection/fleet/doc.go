// Package fleet says where the connections of all nodes go, to one Service port: which share of them stays near, and
// what each endpoint expects.
//
// It decides as package selection does, for nodes that decide alike at once: a property test holds the two against each
// other. Its cost is a sum: of the nodes' groups, the endpoints and their hints, times the keys of the one Service.
package fleet
