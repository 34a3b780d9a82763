package selection

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// kubeProxyView returns the choice of kube-proxy v1.37 for a Service without topology keys. It follows kube-proxy's
// description, independently of this package.
func kubeProxyView(w *world, endpoints []model.PortEndpoint) view {
	ready := where(endpoints, func(e model.PortEndpoint) bool { return e.Ready })
	terminating := where(endpoints, func(e model.PortEndpoint) bool { return !e.Ready && e.Serving && e.Terminating })
	external := w.dialledFromOutside()

	got := view{Cluster: "-", Local: "-"}
	var cluster []model.PortEndpoint
	if !w.service.InternalTrafficLocal || external {
		cluster = kubeProxyCluster(w, ready, terminating)
		got.Cluster = numbers(cluster)
	}
	got.HasUsableEndpoint = len(cluster) > 0
	if w.service.InternalTrafficLocal || w.service.ExternalTrafficLocal && external {
		here := func(e model.PortEndpoint) bool { return e.Node == w.viewpoint.Node.Name }
		local := where(ready, here)
		if len(local) == 0 {
			local = where(terminating, here)
		}
		got.Local = numbers(local)
		got.HasUsableEndpoint = got.HasUsableEndpoint || len(ready)+len(terminating) > 0
	}
	return got
}

// hasExternalFrontend is kube-proxy's condition for externalTrafficPolicy to apply: an external address of the family, or
// a node port.
func (w *world) dialledFromOutside() bool {
	isIPv4 := func(addr netip.Addr) bool { return addr.Is4() }
	return w.port.NodePort > 0 || slices.ContainsFunc(slices.Concat(w.service.ExternalIPs, w.service.LoadBalancerIPs), isIPv4)
}

// kubeProxyRoutes returns kube-proxy's treatment of connections, given its choices.
func kubeProxyRoutes(w *world, choices view) routes {
	if !choices.HasUsableEndpoint {
		return routes{rejectedRoute, rejectedRoute, rejectedRoute}
	}
	local := choices.Local
	if local == "" {
		local = dropped
	}
	got := routes{ClusterIP: choices.Cluster, External: choices.Cluster, ShortCircuit: choices.Cluster}
	if w.service.InternalTrafficLocal {
		got.ClusterIP = local
	}
	if w.service.ExternalTrafficLocal {
		got.External = local
	}
	return got
}

func kubeProxyCluster(w *world, ready, terminating []model.PortEndpoint) []model.PortEndpoint {
	if len(ready) == 0 {
		return terminating
	}
	forThisNode := func(e model.PortEndpoint) bool { return slices.Contains(e.HintNodes, w.viewpoint.Node.Name) }
	forThisZone := func(e model.PortEndpoint) bool { return slices.Contains(e.HintZones, w.viewpoint.Node.Labels[zone]) }
	unhintedNode := func(e model.PortEndpoint) bool { return len(e.HintNodes) == 0 }
	unhintedZone := func(e model.PortEndpoint) bool { return len(e.HintZones) == 0 }
	switch {
	case !slices.ContainsFunc(ready, unhintedNode) && slices.ContainsFunc(ready, forThisNode):
		return where(ready, forThisNode)
	case !slices.ContainsFunc(ready, unhintedZone) && slices.ContainsFunc(ready, forThisZone):
		return where(ready, forThisZone)
	}
	return ready
}

func where(endpoints []model.PortEndpoint, test func(model.PortEndpoint) bool) []model.PortEndpoint {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e model.PortEndpoint) bool { return !test(e) })
}
