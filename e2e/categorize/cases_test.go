package categorize

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testCase is one case in the program's input format.
type testCase struct {
	Node    string                       `json:"node"`
	Labels  map[string]string            `json:"labels"` // of the Node
	Family  corev1.IPFamily              `json:"family"`
	Service *corev1.Service              `json:"service"`
	Slices  []*discoveryv1.EndpointSlice `json:"slices"`
}

// randomCases returns random cases. They are the same each time.
func randomCases(count int) []testCase {
	cases := make([]testCase, count)
	for i := range cases {
		cases[i] = caseGenerator{rand.New(rand.NewPCG(2086, uint64(i)))}.testCase()
	}
	return cases
}

// caseGenerator generates cases with few nodes, zones and addresses, so that they often coincide.
type caseGenerator struct{ *rand.Rand }

func (c caseGenerator) oneIn(n int) bool { return c.IntN(n) == 0 }

func pick[T any](c caseGenerator, values ...T) T { return values[c.IntN(len(values))] }

func (c caseGenerator) nodeName() string { return fmt.Sprintf("node-%d", c.IntN(3)) }
func (c caseGenerator) zone() string     { return fmt.Sprintf("zone-%d", c.IntN(3)) }

func (c caseGenerator) testCase() testCase {
	testCase := testCase{
		Node:    c.nodeName(),
		Labels:  map[string]string{corev1.LabelTopologyZone: c.zone()},
		Family:  pick(c, corev1.IPv4Protocol, corev1.IPv6Protocol),
		Service: c.service(),
	}
	if c.oneIn(6) {
		testCase.Labels = pick(c, nil, map[string]string{corev1.LabelTopologyZone: ""})
	}
	kind := kind{
		family:       testCase.Family,
		withoutNodes: pick(c, 0, 1, 8, 100),
		withoutZones: pick(c, 0, 1, 8, 100),
		ready:        pick(c, 0, 2, 4),
	}
	for i := range pick(c, 0, 1, 1, 2, 2, 2, 3, 3) {
		testCase.Slices = append(testCase.Slices, c.slice(i, kind))
	}
	c.reuse(testCase.Slices)
	return testCase
}

// service returns a Service that is reachable in both families, so that each case has a result.
func (c caseGenerator) service() *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type:       pick(c, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer),
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10", "fd00:96::10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{
				{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
			}[:1+c.IntN(2)],
			InternalTrafficPolicy: pick(c, nil,
				new(corev1.ServiceInternalTrafficPolicyCluster), new(corev1.ServiceInternalTrafficPolicyLocal)),
		},
	}
	spec := &service.Spec
	if c.oneIn(4) {
		spec.ExternalIPs = [][]string{{"192.0.2.1"}, {"2001:db8::1"}, {"192.0.2.1", "2001:db8::1"}}[c.IntN(3)]
	}
	if spec.Type != corev1.ServiceTypeClusterIP || len(spec.ExternalIPs) > 0 {
		spec.ExternalTrafficPolicy = pick(c, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	for i := range spec.Ports {
		if spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer && !c.oneIn(2) {
			spec.Ports[i].NodePort = int32(30080 + i)
		}
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			spec.HealthCheckNodePort = 32000
		}
		if !c.oneIn(3) {
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: pick(c, "192.0.2.2", "2001:db8::2")}}
		}
	}
	return service
}

// kind has the properties that most endpoints of a Service have in common.
type kind struct {
	family                     corev1.IPFamily
	withoutNodes, withoutZones int // percentages of endpoints without hints for nodes, or for zones
	ready                      int // fifths of the endpoints that have no conditions, which means ready
}

// slice returns a slice, which usually belongs to the Service and has the family of kind.
func (c caseGenerator) slice(number int, kind kind) *discoveryv1.EndpointSlice {
	dns := pick(c, corev1.ProtocolUDP, corev1.ProtocolUDP, corev1.ProtocolTCP)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web-%d", number),
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressType(kind.family),
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080 + c.IntN(2)))},
			{Name: new("dns"), Protocol: new(dns), Port: new(int32(53))},
		}[:pick(c, 1, 2, 2, 2)],
	}
	if c.oneIn(5) {
		slice.AddressType = pick(c, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	}
	if c.oneIn(16) {
		slice.Labels[discoveryv1.LabelServiceName] = pick(c, "other", "")
	}
	if c.oneIn(16) {
		slice.Ports[0].Port = nil // all ports; neither proxy supports that
	}
	for i := range c.IntN(6) {
		address := fmt.Sprintf("10.244.%d.%d", number, i+1)
		if slice.AddressType == discoveryv1.AddressTypeIPv6 {
			address = fmt.Sprintf("fd00:244::%d:%d", number, i+1)
		}
		slice.Endpoints = append(slice.Endpoints, c.endpoint(address, kind))
	}
	return slice
}

// endpoint returns an endpoint with any conditions, whether they are consistent or not.
func (c caseGenerator) endpoint(address string, kind kind) discoveryv1.Endpoint {
	endpoint := discoveryv1.Endpoint{Addresses: []string{address}}
	if !c.oneIn(8) {
		endpoint.NodeName = new(c.nodeName())
	}
	if !c.oneIn(3) {
		endpoint.Zone = new(c.zone())
	}
	condition := func() *bool { return pick(c, nil, new(true), new(false)) }
	if c.IntN(5) >= kind.ready {
		endpoint.Conditions = discoveryv1.EndpointConditions{Ready: condition(), Serving: condition(), Terminating: condition()}
	}
	if kind.ready == 0 && !c.oneIn(8) {
		endpoint.Conditions.Ready = new(false)
	}
	var hints discoveryv1.EndpointHints
	if c.IntN(100) >= kind.withoutNodes {
		for range 1 + c.IntN(2) {
			hints.ForNodes = append(hints.ForNodes, discoveryv1.ForNode{Name: c.nodeName()})
		}
	}
	if c.IntN(100) >= kind.withoutZones {
		for range 1 + c.IntN(2) {
			name := c.zone()
			if c.oneIn(30) {
				name = "" // nodes without a zone; the API server accepts it
			}
			hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: name})
		}
	}
	if len(hints.ForNodes)+len(hints.ForZones) > 0 || c.oneIn(2) {
		endpoint.Hints = &hints
	}
	return endpoint
}

// reuse adds terminating endpoints with the addresses of other endpoints, as when a pod gets the address of its
// predecessor. If several endpoints with one address are not terminating, kube-proxy uses any of them.
func (c caseGenerator) reuse(all []*discoveryv1.EndpointSlice) {
	for _, slice := range all {
		for _, endpoint := range slice.Endpoints {
			if terminates(endpoint) || !c.oneIn(8) {
				continue
			}
			predecessor := c.endpoint(endpoint.Addresses[0], kind{})
			predecessor.Conditions.Terminating = new(true)
			if other := all[c.IntN(len(all))]; other.AddressType == slice.AddressType {
				other.Endpoints = append(other.Endpoints, predecessor)
			}
		}
	}
}

func terminates(endpoint discoveryv1.Endpoint) bool {
	return endpoint.Conditions.Terminating != nil && *endpoint.Conditions.Terminating
}

// hidden are changes that hide parts of a case from Vicinity, by name.
var hidden = map[string]func(testCase) testCase{
	"hints":       withEndpoints(func(endpoint *discoveryv1.Endpoint) { endpoint.Hints = nil }),
	"node names":  withEndpoints(func(endpoint *discoveryv1.Endpoint) { endpoint.NodeName = nil }),
	"terminating": withEndpoints(func(endpoint *discoveryv1.Endpoint) { endpoint.Conditions.Terminating = nil }),
	"readiness":   withEndpoints(func(endpoint *discoveryv1.Endpoint) { endpoint.Conditions.Ready = nil }),
	"internalTrafficPolicy": func(testCase testCase) testCase {
		testCase.Service = testCase.Service.DeepCopy()
		testCase.Service.Spec.InternalTrafficPolicy = nil
		return testCase
	},
	"externalTrafficPolicy": func(testCase testCase) testCase {
		testCase.Service = testCase.Service.DeepCopy()
		testCase.Service.Spec.ExternalTrafficPolicy = ""
		return testCase
	},
}

// withEndpoints changes every endpoint of a copy.
func withEndpoints(change func(*discoveryv1.Endpoint)) func(testCase) testCase {
	return func(testCase testCase) testCase {
		all := testCase.Slices
		testCase.Slices = nil
		for _, slice := range all {
			slice = slice.DeepCopy()
			for i := range slice.Endpoints {
				change(&slice.Endpoints[i])
			}
			testCase.Slices = append(testCase.Slices, slice)
		}
		return testCase
	}
}
