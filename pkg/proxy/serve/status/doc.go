// Package status says whether the proxy does its work, to a kubelet or a load balancer that asks over HTTP, and shows
// the pages that a Kubernetes component has beside its metrics.
//
// Status is fed by the proxy and holds what it was given. Status.Verdict judges that at a given moment; it is a pure
// function of both. Status.Handler serves the verdict as kube-proxy does: /healthz, /livez and, of our own, /readyz.
//
// Pages are served on the address of the metrics and under kube-proxy's paths: /metrics, /healthz, /proxyMode,
// /configz, /flagz, /statusz and, if asked for, /debug/pprof. We write them ourselves, in Kubernetes' format (KEP-4827,
// KEP-4828): Kubernetes' library for them would pull in the API server's.
package status
