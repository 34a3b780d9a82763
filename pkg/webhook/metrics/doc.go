// Package metrics is what the admission webhook counts, as a Prometheus server reads it.
//
// Label values are those of the packages that count, such as the ids of rules, so that every count exists at zero from
// the start and a rate over its first increment is right.
package metrics
