// Package demand finds out how much of a Service's connections each zone asks for. One replica of the webhook asks all proxies what
// they counted (pull.go), sums it up by zone (follow.go), and tells where that is not as bounds on load assume: the metrics and,
// with an Event, the Service's owner (advise.go). Where the owner wants bounds to be planned with it, it publishes a ServiceDemand
// (reconcile.go), as far as the budget goes (plan.go).
//
// The estimator (estimate.go, of nodes busy.go), the sum, what is to be written (changes.go, object.go) and the budget are pure: time
// comes with each sample. What is published is read from the objects in each round. So a leader that comes goes on from them, and
// a write that failed is decided again.
package demand
