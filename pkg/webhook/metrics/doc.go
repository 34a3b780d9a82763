// Package metrics is what the admission webhook counts, as a Prometheus server reads it.
//
// It does not know the values of labels that others choose, such as the names of rules: New is given them, so that
// every count exists at zero before anything happened and a rate over its first increment is right.
package metrics
