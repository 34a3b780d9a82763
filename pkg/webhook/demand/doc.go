// Package demand finds out how much of a Service's connections each zone asks for, and tells where that is not as bounds on load
// assume. One replica of the webhook asks all proxies what they counted (pull.go), sums it up by zone (follow.go), and tells the
// metrics and, with an Event, the Service's owner (advise.go). The estimator (estimate.go) is pure, and so is the sum: time comes
// with each sample.
package demand
