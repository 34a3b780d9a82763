// Package metrics is what the admission webhook counts, as a Prometheus server reads it.
//
// It does not know label values that others define, such as the names of rules. New gets them, so that every count
// exists at zero from the start and a rate over its first increment is right.
package metrics
