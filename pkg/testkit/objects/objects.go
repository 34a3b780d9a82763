// Package objects returns ordinary Kubernetes objects, of which a test changes only the relevant parts.
package objects

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The ports of the Services and EndpointSlices.
const (
	PortName    = "http"
	ServicePort = 80
	TargetPort  = 8080
)

// Namespace returns a Namespace.
func Namespace(name string, labels, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
}

// Node returns a Node with internal addresses.
func Node(name string, labels map[string]string, addrs ...netip.Addr) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	for _, addr := range addrs {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
	}
	return node
}

// Service returns a Service with one TCP port and the changes applied. Its labels and annotations are not nil, so that
// tests can add to them.
func Service(namespace, name string, changes ...func(*corev1.Service)) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: PortName, Port: ServicePort}},
		},
	}
	for _, change := range changes {
		change(service)
	}
	return service
}

// Annotated returns a change that adds an annotation to a Service.
func Annotated(key, value string) func(*corev1.Service) {
	return func(service *corev1.Service) { service.Annotations[key] = value }
}

// Labelled returns a change that adds a label to a Service.
func Labelled(key, value string) func(*corev1.Service) {
	return func(service *corev1.Service) { service.Labels[key] = value }
}

// Slice returns an EndpointSlice of a Service for IPv4, with an endpoint for each address.
func Slice(namespace, name, service string, addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(PortName), Port: new(int32(TargetPort))}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return slice
}
