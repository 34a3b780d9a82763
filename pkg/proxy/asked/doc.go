// Package asked counts the new connections that this node's clients make to Services whose load is bounded, as long as
// somebody reads the page that says so. What is counted is what clients ask, wherever their connections lead: so it does not
// change when endpoints are chosen otherwise.
package asked
