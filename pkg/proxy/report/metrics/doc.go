// Package metrics has the proxy's Prometheus metrics.
//
// A metric that means the same as one of kube-proxy's has kube-proxy's name, labels and buckets, so that the dashboards
// and scale tests of a cluster work unchanged; ours begin with vicinity_. All of them are in table.go.
//
// A new metric is a row in table.go and the line that observes it; for Service ports that is in serviceports.go and in
// pkg/proxy/daemon/serviceports.go. Then run `go test ./pkg/proxy/report/metrics -update`.
package metrics
