// Package metrics is what the proxy counts, as a Prometheus server reads it.
//
// A metric that means the same as one of kube-proxy's has kube-proxy's name, labels and buckets, so that the
// dashboards and scale tests of a cluster work unchanged; ours begin with vicinity_. All of them are in table.go.
package metrics
