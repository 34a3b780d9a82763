// Package demand finds out how much of a Service's connections each zone asks for. One replica of the webhook asks all
// proxies what they counted (pull.go), and sums it up by zone (aggregator.go). Where that differs from what bounds on load
// assume, it reports it: in metrics and, with an Event, to the Service's owner (events.go). If the owner wants bounds
// to be planned with it, it publishes a ServiceDemand (reconcile.go), within a budget (plan.go).
//
// The estimator (estimate.go), the sum, what should be written (changes.go, object.go) and the
// budget are pure: time comes with each sample. Each round reads the published state from the objects. So a new leader
// goes on from them, and a failed write is decided again.
package demand
