// Package demandcounter counts the new connections that this node's clients open to load-bounded Services, while the
// page with the counts is being polled. It counts clients' demand, independent of the chosen endpoints, so a different
// choice does not change the counts. Connections that a filter on this node drops are not counted, nor are those for
// which there is no endpoint.
//
// To change what is counted and when, see counter.go; which Services are counted, select.go. The nftables table is
// built in proxy/ruleset/demand.go, and package demandapi defines the page.
package demandcounter
