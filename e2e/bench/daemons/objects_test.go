package daemons_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

const (
	namespace   = metav1.NamespaceDefault
	portName    = "http"
	servicePort = 80
	podPort     = 8080
)

func (s *site) createNode(b *testing.B, node *fabric.Node) {
	b.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}}}
	made, err := s.client.CoreV1().Nodes().Create(b.Context(), object, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	made.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: node.IPv4.String()}, {Type: corev1.NodeInternalIP, Address: node.IPv6.String()},
	}
	if _, err := s.client.CoreV1().Nodes().UpdateStatus(b.Context(), made, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// createProbe creates the Service that is dialled. Its only endpoint is the old pod.
func (s *site) createProbe(b *testing.B) {
	b.Helper()
	made, err := s.createService(b.Context(), "probe", s.old.IPv4)
	if err != nil {
		b.Fatal(err)
	}
	s.probe = netip.AddrPortFrom(netip.MustParseAddr(made.Spec.ClusterIP), servicePort)
}

// createService creates a Service with a slice of its endpoints.
func (s *site) createService(ctx context.Context, name string, endpoints ...netip.Addr) (*corev1.Service, error) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: portName, Port: servicePort}}},
	}
	made, err := s.client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, err = s.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, s.slice(name, endpoints...), metav1.CreateOptions{})
	return made, err
}

func (s *site) slice(service string, endpoints ...netip.Addr) *discoveryv1.EndpointSlice {
	made := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(portName), Port: new(int32(podPort)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, addr := range endpoints {
		made.Endpoints = append(made.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{addr.String()}, NodeName: new(s.far.Name), Zone: new("zone-a"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	}
	return made
}

// update writes a slice's endpoints.
func (s *site) update(ctx context.Context, service string, endpoints ...netip.Addr) error {
	_, err := s.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, s.slice(service, endpoints...), metav1.UpdateOptions{})
	return err
}

func serviceName(number int) string { return fmt.Sprintf("service-%d", number) }

// endpointsOf are addresses of nobody. The generation changes one of them.
func endpointsOf(number, generation int) []netip.Addr {
	addrs := make([]netip.Addr, 0, endpointsPerService)
	for endpoint := range endpointsPerService {
		addrs = append(addrs, netip.AddrFrom4([4]byte{10, byte(128 + endpoint), byte(number >> 8), byte(number)}))
	}
	addrs[0] = netip.AddrFrom4([4]byte{10, byte(64 + generation%64), byte(number >> 8), byte(number)})
	return addrs
}

// grow adds Services until there are so many, beside the one that is dialled.
func (s *site) grow(b *testing.B, services int) {
	b.Helper()
	const writers = 8
	failed := make(chan error, writers)
	for writer := range writers {
		go func() {
			for number := s.services + writer; number < services; number += writers {
				if _, err := s.createService(b.Context(), serviceName(number), endpointsOf(number, 0)...); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range writers {
		if err := <-failed; err != nil {
			b.Fatal(err)
		}
	}
	s.services = services
}
