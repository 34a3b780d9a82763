// Package health says whether the proxy does its work, to a kubelet or a load balancer that asks over HTTP.
//
// Status is fed by the proxy and holds what it was told. Status.Verdict judges that at a given moment; it is a pure function
// of both. Status.Handler serves the verdict as kube-proxy does: /healthz, /livez and, of our own, /readyz.
package health
