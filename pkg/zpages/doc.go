// Package zpages serves what a Kubernetes component tells about itself, on the address of its metrics and under kube-proxy's paths:
// /metrics, /healthz, /proxyMode, /configz, /flagz, /statusz and, if asked for, /debug/pprof.
//
// The pages are text of our own in Kubernetes' format (KEP-4827, KEP-4828). Its library for them is part of the API server's, which
// would come along.
package zpages
