// Package metrics implements the admission webhook's Prometheus metrics.
//
// Label values come from the packages that count, such as the IDs of rules. So every series exists from the start at
// zero, and a rate over its first increment is right.
//
// To add a metric, add a row in names.go, and describe it in README.md.
package metrics
