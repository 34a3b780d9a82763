// Package metrics is what the admission webhook counts, as a Prometheus server reads it.
//
// It is told what happened and asks nobody. It does not know the words of those who tell it, such as the names of rules: New is handed
// them, so that every count exists at zero before anything happened and a rate over its first increment is right.
package metrics
