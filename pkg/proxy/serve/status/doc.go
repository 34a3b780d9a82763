// Package status reports the proxy's health over HTTP to kubelets and load balancers, and serves the pages of a
// Kubernetes component next to its metrics.
//
// The proxy reports events to Status. Status.Health derives the health at a given time from them, without a clock of
// its own. Status.Handler serves it like kube-proxy does: /healthz, /livez and, in addition, /readyz.
//
// Pages are served on the metrics address under kube-proxy's paths: /metrics, /healthz, /proxyMode, /configz, /flagz,
// /statusz and, if enabled, /debug/pprof; our own are /summary and /findings. Kubernetes' pages are written here in its
// format (KEP-4827, KEP-4828), because its library for them would link the API server's library.
//
// To change when the proxy is healthy, live or ready, see health.go and Status.Health in status.go. To add a page next
// to /metrics, see pages.go, and paths in text.go for /statusz. To add a field to /summary, see summary.go; package
// daemon sets it, and package drift prints it. Package clusterstatus queries the proxies of all nodes.
package status
