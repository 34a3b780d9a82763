package forecast

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// clusterGenerator generates random clusters of a few nodes and Services of all kinds.
type clusterGenerator struct{ *rand.Rand }

func newGenerator(seed uint64) clusterGenerator {
	return clusterGenerator{rand.New(rand.NewPCG(seed, 18))}
}

func (g clusterGenerator) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g clusterGenerator) node() string { return fmt.Sprint("node-", g.IntN(6)) }

func (g clusterGenerator) cluster() convert.Objects {
	var objects convert.Objects
	for i := range 2 + g.IntN(5) {
		labels := map[string]string{string(policy.Zone): fmt.Sprint("zone-", g.IntN(3)), "example.com/rack": fmt.Sprint(g.IntN(4))}
		if g.oneIn(5) {
			labels[policy.DemandLabel] = fmt.Sprint(g.IntN(4))
		}
		if g.oneIn(6) {
			labels[policy.EvacuateLabel] = "true"
		}
		if g.oneIn(6) {
			delete(labels, string(policy.Zone))
		}
		objects.Nodes = append(objects.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: labels}})
	}
	for i := range 3 {
		name := fmt.Sprint("web-", i)
		service := g.service(name, i)
		objects.Services = append(objects.Services, service)
		for sliceIndex := range 1 + g.IntN(2) {
			objects.Slices = append(objects.Slices, g.slice(fmt.Sprintf("%s-%d", name, sliceIndex), service, byte(10*i+sliceIndex)))
		}
	}
	return objects
}

// hintedCluster returns a cluster with regions, settings that work through hints, and slices of the EndpointSlice
// controller.
func (g clusterGenerator) hintedCluster() convert.Objects {
	objects := g.cluster()
	for _, node := range objects.Nodes {
		if !g.oneIn(3) {
			node.Labels["topology.kubernetes.io/region"] = fmt.Sprint("region-", g.IntN(2))
		}
	}
	for _, service := range objects.Services {
		switch g.IntN(4) {
		case 0:
			service.Spec.TrafficDistribution = new([]string{policy.PreferSameZone, policy.PreferSameNode}[g.IntN(2)])
		case 1:
			service.Annotations[policy.TopologyModeAnnotation] = policy.ModeAuto
		}
		isManaged := !g.oneIn(3)
		for _, slice := range objects.Slices {
			if isManaged && slice.Labels[discoveryv1.LabelServiceName] == service.Name {
				slice.Labels[discoveryv1.LabelManagedBy] = managedByController
			}
		}
	}
	return objects
}

func (g clusterGenerator) service(name string, index int) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			ClusterIP: fmt.Sprint("10.96.0.", index+1), Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	local := corev1.ServiceInternalTrafficPolicyLocal
	switch g.IntN(8) {
	case 0:
		service.Spec.InternalTrafficPolicy = &local
	case 1:
		service.Spec.ClusterIP = corev1.ClusterIPNone
	case 2:
		service.Spec.Type, service.Spec.ExternalName, service.Spec.ClusterIP = corev1.ServiceTypeExternalName, "example.com", ""
	}
	if g.oneIn(2) {
		keys := []string{
			"kubernetes.io/hostname, topology.kubernetes.io/zone, *", "topology.kubernetes.io/zone", "example.com/rack, *",
			"example.com/rack, topology.kubernetes.io/zone, *", "kubernetes.io/hostname",
		}
		service.Annotations[policy.TopologyKeysAnnotation] = keys[g.IntN(len(keys))]
		if g.oneIn(2) {
			service.Annotations[policy.MaxLoadAnnotation] = fmt.Sprint(100+g.IntN(100), "%")
			if g.oneIn(2) {
				service.Annotations[policy.ClientsAnnotation] = "shop/web-0"
			}
		}
	}
	return service
}

func (g clusterGenerator) slice(name string, service *corev1.Service, net byte) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &service.Spec.Ports[0].Name, Port: new(int32(8080))}},
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	hinted := g.oneIn(2)
	for i := range g.IntN(5) {
		ready, serving, terminating := !g.oneIn(4), !g.oneIn(3), g.oneIn(2)
		endpoint := discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.244.%d.%d", net, i+1)}, NodeName: new(g.node()),
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		}
		if g.oneIn(2) {
			endpoint.Zone = new(fmt.Sprint("zone-", g.IntN(3)))
		}
		if hinted && !g.oneIn(8) {
			endpoint.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: fmt.Sprint("zone-", g.IntN(3))}}}
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}
