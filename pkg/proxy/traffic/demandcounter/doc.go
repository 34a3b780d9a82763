// Package demandcounter counts the new connections that this node's clients make to Services whose load is bounded, as long as
// somebody reads the page with the counts. It counts the demand of clients, wherever their connections lead: so the
// counts do not change when endpoints are chosen differently. A client that a filter on this node keeps from a Service
// adds nothing to its demand, nor does one that finds no endpoint.
package demandcounter
