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
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

const (
	namespace   = metav1.NamespaceDefault
	servicePort = objects.ServicePort
	podPort     = objects.TargetPort
)

func (s *setup) createNode(b *testing.B, node *fabric.Node) {
	b.Helper()
	zone := map[string]string{corev1.LabelTopologyZone: "zone-a"}
	s.api.Create(b, objects.Node(node.Name, zone, node.IPv4, node.IPv6))
}

// createProbe creates the dialled Service. Its only endpoint is the old pod.
func (s *setup) createProbe(b *testing.B) {
	b.Helper()
	service, err := s.createService(b.Context(), "probe", s.old.IPv4)
	if err != nil {
		b.Fatal(err)
	}
	s.frontend = netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), servicePort)
}

// createService creates a Service and its EndpointSlice.
func (s *setup) createService(ctx context.Context, name string, endpoints ...netip.Addr) (*corev1.Service, error) {
	service := objects.Service(namespace, name)
	created, err := s.api.Admin.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, err = s.api.Admin.DiscoveryV1().EndpointSlices(namespace).Create(ctx, s.slice(name, endpoints...), metav1.CreateOptions{})
	return created, err
}

func (s *setup) slice(service string, endpoints ...netip.Addr) *discoveryv1.EndpointSlice {
	slice := objects.Slice(namespace, service, service)
	for _, addr := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{addr.String()}, NodeName: new(s.far.Name), Zone: new("zone-a"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	}
	return slice
}

// update writes the endpoints of an EndpointSlice.
func (s *setup) update(ctx context.Context, service string, endpoints ...netip.Addr) error {
	_, err := s.api.Admin.DiscoveryV1().EndpointSlices(namespace).Update(ctx, s.slice(service, endpoints...), metav1.UpdateOptions{})
	return err
}

func serviceName(number int) string { return fmt.Sprintf("service-%d", number) }

// endpointsOf returns addresses that no machine has. The generation changes one of them.
func (s *setup) endpointsOf(number, generation int) []netip.Addr {
	addrs := make([]netip.Addr, 0, s.endpoints)
	for endpoint := range s.endpoints {
		addrs = append(addrs, netip.AddrFrom4([4]byte{10, byte(128 + endpoint), byte(number >> 8), byte(number)}))
	}
	addrs[0] = netip.AddrFrom4([4]byte{10, byte(64 + generation%64), byte(number >> 8), byte(number)})
	return addrs
}

// grow adds Services up to the given number, not counting the dialled one.
func (s *setup) grow(b *testing.B, services int) {
	b.Helper()
	const writers = 8
	failed := make(chan error, writers)
	for writer := range writers {
		go func() {
			for number := s.services + writer; number < services; number += writers {
				if _, err := s.createService(b.Context(), serviceName(number), s.endpointsOf(number, 0)...); err != nil {
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
