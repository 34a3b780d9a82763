package model

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type frontendCase struct {
	service  Service
	nodePort uint16
	family   Family
	want     string // frontends, each after its kind
}

var frontendCases = map[string]frontendCase{
	"only a ClusterIP": {
		service: Service{ClusterIPs: addrs("10.96.0.1")},
		want:    "ClusterIP=10.96.0.1:53/UDP",
	},
	"every kind: the ClusterIP first, node ports last, each list in its own order": {
		service: Service{
			ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("192.0.2.9 192.0.2.1"), LoadBalancerIPs: addrs("203.0.113.2 203.0.113.1"),
		},
		nodePort: 30053,
		want: "ClusterIP=10.96.0.1:53/UDP LoadBalancerIP=203.0.113.2:53/UDP LoadBalancerIP=203.0.113.1:53/UDP " +
			"ExternalIP=192.0.2.9:53/UDP ExternalIP=192.0.2.1:53/UDP NodePort=*:30053/UDP",
	},
	"a ClusterIP and a node port": {
		service:  Service{ClusterIPs: addrs("10.96.0.1")},
		nodePort: 30053,
		want:     "ClusterIP=10.96.0.1:53/UDP NodePort=*:30053/UDP",
	},
	"a load balancer's address without a node port": {
		service: Service{ClusterIPs: addrs("10.96.0.1"), LoadBalancerIPs: addrs("203.0.113.1")},
		want:    "ClusterIP=10.96.0.1:53/UDP LoadBalancerIP=203.0.113.1:53/UDP",
	},
	"an external IP that is also a load balancer's address is a LoadBalancerIP": {
		service: Service{ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("203.0.113.1"), LoadBalancerIPs: addrs("203.0.113.1")},
		want:    "ClusterIP=10.96.0.1:53/UDP LoadBalancerIP=203.0.113.1:53/UDP",
	},
	"an external IP that is also the ClusterIP is a ClusterIP": {
		service: Service{ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("10.96.0.1")},
		want:    "ClusterIP=10.96.0.1:53/UDP",
	},
	"a load balancer's address that is also the ClusterIP is a ClusterIP": {
		service: Service{ClusterIPs: addrs("10.96.0.1"), LoadBalancerIPs: addrs("10.96.0.1")},
		want:    "ClusterIP=10.96.0.1:53/UDP",
	},
	"an external IP that is listed twice is returned once": {
		service: Service{ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("192.0.2.1 192.0.2.1")},
		want:    "ClusterIP=10.96.0.1:53/UDP ExternalIP=192.0.2.1:53/UDP",
	},
	"a node port with the same number as the port": {
		service:  Service{ClusterIPs: addrs("10.96.0.1")},
		nodePort: 53,
		want:     "ClusterIP=10.96.0.1:53/UDP NodePort=*:53/UDP",
	},
	"a Service with both families: only the requested one": {
		service: Service{
			ClusterIPs: addrs("10.96.0.1 fd00:96::1"), ExternalIPs: addrs("2001:db8::9 192.0.2.9"),
			LoadBalancerIPs: addrs("203.0.113.1 2001:db8::1"),
		},
		nodePort: 30053, family: IPv6,
		want: "ClusterIP=[fd00:96::1]:53/UDP LoadBalancerIP=[2001:db8::1]:53/UDP ExternalIP=[2001:db8::9]:53/UDP NodePort=*:30053/UDP",
	},
	"addresses of the other family only": {
		service: Service{ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("2001:db8::9"), LoadBalancerIPs: addrs("2001:db8::1")},
		want:    "ClusterIP=10.96.0.1:53/UDP",
	},
	"none in a family without a ClusterIP, even with other addresses": {
		service: Service{
			ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("2001:db8::9"), LoadBalancerIPs: addrs("2001:db8::1"),
		},
		nodePort: 30053, family: IPv6,
	},
}

func TestFrontends(t *testing.T) {
	for name, test := range frontendCases {
		t.Run(name, func(t *testing.T) {
			port := ServicePort{Protocol: UDP, Port: 53, NodePort: test.nodePort}
			var got []string
			for _, frontend := range test.service.Frontends(port, test.family) {
				got = append(got, frontend.Kind.String()+"="+frontend.String())
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("frontends (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPortIsExternalIfOneOfItsFrontendsIs(t *testing.T) {
	for name, test := range frontendCases {
		t.Run(name, func(t *testing.T) {
			port := ServicePort{Protocol: UDP, Port: 53, NodePort: test.nodePort}
			want := slices.ContainsFunc(test.service.Frontends(port, test.family), func(frontend PortFrontend) bool {
				return frontend.Kind.IsExternal()
			})
			if got := test.service.IsExternal(port, test.family); got != want {
				t.Errorf("the port is external: %v, want %v because of %s", got, want, test.want)
			}
		})
	}
}

func TestOnlyAClusterIPIsNotExternal(t *testing.T) {
	for kind, want := range map[FrontendKind]bool{ClusterIP: false, LoadBalancerIP: true, ExternalIP: true, NodePort: true} {
		if got := kind.IsExternal(); got != want {
			t.Errorf("%s is external: %v, want %v", kind, got, want)
		}
	}
}

func TestIsNodePort(t *testing.T) {
	for text, want := range map[string]bool{"0.0.0.0": true, "::": true, "10.96.0.1": false, "fd00:96::1": false} {
		if got := (Frontend{Addr: netip.MustParseAddr(text), Protocol: TCP, Port: 80}).IsNodePort(); got != want {
			t.Errorf("%s is a node port: %v, want %v", text, got, want)
		}
	}
}

func TestFrontendsAreOrderedByAddressProtocolAndPort(t *testing.T) {
	newFrontend := func(addr string, protocol Protocol, port uint16) Frontend {
		return Frontend{Addr: netip.MustParseAddr(addr), Protocol: protocol, Port: port}
	}
	sorted := []Frontend{
		newFrontend("0.0.0.0", TCP, 30080), newFrontend("10.96.0.1", TCP, 80), newFrontend("10.96.0.1", TCP, 443),
		newFrontend("10.96.0.1", UDP, 53),
		newFrontend("10.96.0.10", TCP, 80), newFrontend("::", TCP, 30080), newFrontend("fd00:96::1", TCP, 80),
	}
	shuffled := slices.Clone(sorted)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, Frontend.Compare)
	if got := texts(shuffled); got != texts(sorted) {
		t.Errorf("the order is %s, want %s", got, texts(sorted))
	}
	for _, frontend := range sorted {
		if frontend.Compare(frontend) != 0 {
			t.Errorf("%s does not equal itself", frontend)
		}
	}
}
