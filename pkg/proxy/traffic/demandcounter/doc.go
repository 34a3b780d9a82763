// Package demandcounter counts the new connections that this node's clients open to load-bounded Services, while the
// page with the counts is being polled. It counts clients' demand, independent of the chosen endpoints, so a different
// choice does not change the counts. Connections that a filter on this node drops are not counted, nor are those for
// which there is no endpoint. For Services that use measured demand it also counts the open connections, in a dump of
// conntrack.
//
// To change what is counted and when, see counter.go, and for open connections open.go; which Services are counted,
// select.go. The nftables table is built in proxy/ruleset/demand.go, and package demandapi defines the page.
//
// Accounting dumps conntrack, too, once a minute. The two share a dump only if both wait for the throttle at the same
// time. Passing accounting's entries to the counter would save at most one of three dumps, and none if each page is
// read more than dumpInterval after accounting's dump.
package demandcounter
