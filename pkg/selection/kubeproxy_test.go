package selection

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// kubeProxyView returns the choice of kube-proxy v1.37 for a Service without topology keys. It follows kube-proxy's
// description, independently of this package.
func kubeProxyView(s *scenario, endpoints []model.PortEndpoint) selectionText {
	ready := filter(endpoints, func(e model.PortEndpoint) bool { return e.Ready })
	terminating := filter(endpoints, func(e model.PortEndpoint) bool { return !e.Ready && e.Serving && e.Terminating })
	external := s.hasExternalFrontend()

	got := selectionText{Cluster: "-", Local: "-"}
	var cluster []model.PortEndpoint
	if !s.service.InternalTrafficLocal || external {
		cluster = kubeProxyCluster(s, ready, terminating)
		got.Cluster = numbers(cluster)
	}
	got.HasUsableEndpoint = len(cluster) > 0
	if s.service.InternalTrafficLocal || s.service.ExternalTrafficLocal && external {
		isLocal := func(e model.PortEndpoint) bool { return e.Node == s.viewpoint.Node.Name }
		local := filter(ready, isLocal)
		if len(local) == 0 {
			local = filter(terminating, isLocal)
		}
		got.Local = numbers(local)
		got.HasUsableEndpoint = got.HasUsableEndpoint || len(ready)+len(terminating) > 0
	}
	return got
}

// hasExternalFrontend is kube-proxy's condition for externalTrafficPolicy to apply: an external address of the family, or
// a node port.
func (s *scenario) hasExternalFrontend() bool {
	isIPv4 := func(addr netip.Addr) bool { return addr.Is4() }
	return s.port.NodePort > 0 || slices.ContainsFunc(slices.Concat(s.service.ExternalIPs, s.service.LoadBalancerIPs), isIPv4)
}

// kubeProxyRoutes returns kube-proxy's treatment of connections, given its choices.
func kubeProxyRoutes(s *scenario, choices selectionText) routes {
	if !choices.HasUsableEndpoint {
		return routes{refusedRoute, refusedRoute, refusedRoute}
	}
	local := choices.Local
	if local == "" {
		local = droppedRoute
	}
	got := routes{ClusterIP: choices.Cluster, External: choices.Cluster, ShortCircuit: choices.Cluster}
	if s.service.InternalTrafficLocal {
		got.ClusterIP = local
	}
	if s.service.ExternalTrafficLocal {
		got.External = local
	}
	return got
}

func kubeProxyCluster(s *scenario, ready, terminating []model.PortEndpoint) []model.PortEndpoint {
	if len(ready) == 0 {
		return terminating
	}
	forThisNode := func(e model.PortEndpoint) bool { return slices.Contains(e.HintNodes, s.viewpoint.Node.Name) }
	forThisZone := func(e model.PortEndpoint) bool { return slices.Contains(e.HintZones, s.viewpoint.Node.Labels[zone]) }
	unhintedNode := func(e model.PortEndpoint) bool { return len(e.HintNodes) == 0 }
	unhintedZone := func(e model.PortEndpoint) bool { return len(e.HintZones) == 0 }
	switch {
	case !slices.ContainsFunc(ready, unhintedNode) && slices.ContainsFunc(ready, forThisNode):
		return filter(ready, forThisNode)
	case !slices.ContainsFunc(ready, unhintedZone) && slices.ContainsFunc(ready, forThisZone):
		return filter(ready, forThisZone)
	}
	return ready
}

func filter(endpoints []model.PortEndpoint, test func(model.PortEndpoint) bool) []model.PortEndpoint {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e model.PortEndpoint) bool { return !test(e) })
}
