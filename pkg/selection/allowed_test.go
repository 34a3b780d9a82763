package selection

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// allowedSet has the numbers of the endpoints that may continue to serve flows of internal and external clients.
type allowedSet struct{ Internal, External string }

func addrNumbers(addrs []netip.AddrPort) string {
	var endpoints []model.PortEndpoint
	for _, addr := range addrs {
		endpoints = append(endpoints, model.PortEndpoint{Addr: addr})
	}
	return numbers(endpoints)
}

func TestAllowedEndpoints(t *testing.T) {
	all := func(numbers string) allowedSet { return allowedSet{numbers, numbers} }
	tests := map[string]struct {
		service             model.Service
		endpoints           string
		clusterIP, external allowedSet
	}{
		"all endpoints, anywhere": {
			model.Service{}, "1* 2@node-2 3", all("1 2 3"), all("1 2 3"),
		},
		"a terminating endpoint while it serves, although new connections go to ready ones": {
			model.Service{}, "1t* 2@node-2 3x@node-3", all("1 2"), all("1 2"),
		},
		"an endpoint that serves without being ready, terminating or not": {
			model.Service{}, "1s* 2t@node-2", all("1 2"), all("1 2"),
		},
		"an endpoint that is neither serving nor ready is excluded": {
			model.Service{}, "1!* 2x@node-2 3@node-3", all("3"), all("3"),
		},
		"endpoints with publishNotReadyAddresses, terminating or not": {
			model.Service{}, "1p* 2r@node-2", all("1 2"), all("1 2"),
		},
		"no endpoints": {
			model.Service{}, "", all(""), all(""),
		},
		"a hard topology key: the endpoints that it matches": {
			withKeys(model.Service{}, "zone"), "1* 2@node-2 3@node-3 4@node-4/a 9@node-9", all("1 2 4"), all("1 2 4"),
		},
		"several keys: the endpoints that any of them matches": {
			withKeys(model.Service{}, "hostname zone"), "1* 2@node-2 3@node-3", all("1 2"), all("1 2"),
		},
		"keys that end with *: all endpoints": {
			withKeys(model.Service{}, "hostname zone *"), "1* 2@node-2 3@node-3 9@node-9 5", all("1 2 3 9 5"), all("1 2 3 9 5"),
		},
		"a key for which this node has no label: none": {
			withKeys(model.Service{}, "example.com/row"), "1* 2@node-2", all(""), all(""),
		},
		"hints do not break flows": {
			model.Service{}, "1*(b) 2@node-2(a)[node-2] 3@node-3(b)", all("1 2 3"), all("1 2 3"),
		},
		"internalTrafficPolicy: Local keeps the ClusterIP's flows on this node, for all clients": {
			internalLocal, "1* 2@node-2 3t* 4", all("1 3"), all("1 2 3 4"),
		},
		"externalTrafficPolicy: Local keeps the other frontends' flows on this node, for external clients": {
			externalLocal, "1* 2@node-2 3t* 4", all("1 2 3 4"), allowedSet{"1 2 3 4", "1 3"},
		},
		"both policies Local": {
			bothLocal, "1* 2@node-2", all("1"), allowedSet{"1 2", "1"},
		},
		"Local policies with endpoints only on other nodes": {
			bothLocal, "2@node-2", all(""), allowedSet{"2", ""},
		},
		"keys do not apply where a Local policy applies": {
			withKeys(bothLocal, "example.com/row"), "1* 2@node-2", all("1"), allowedSet{"", "1"},
		},
		"keys apply to internal clients, externalTrafficPolicy: Local does not": {
			withKeys(externalLocal, "zone"), "1* 2@node-2 3@node-3", all("1 2"), allowedSet{"1 2", "1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service, port := test.service, model.ServicePort{Protocol: model.UDP, Port: 53, NodePort: 30053}
			service.ClusterIPs, service.ExternalIPs = parseAddrs("10.96.0.1"), parseAddrs("192.0.2.1")
			service.LoadBalancerIPs = parseAddrs("203.0.113.1")
			viewpoint, endpoints := viewFrom(testNodes), parseEndpoints(t, test.endpoints)
			decision := Decision{Viewpoint: viewpoint, Service: &service, Port: port, Endpoints: endpoints}
			decision.Frontends = service.Frontends(port, model.IPv4)
			got := map[string]allowedSet{}
			cluster, local, _ := decision.AllowedEndpoints()
			lists := map[bool]string{false: addrNumbers(cluster), true: addrNumbers(local)}
			for _, frontend := range decision.Frontends {
				internal, external := decision.IsLocalOnly(frontend.Kind)
				got[frontend.String()] = allowedSet{lists[internal], lists[external]}
			}
			want := map[string]allowedSet{
				"10.96.0.1:53/UDP": test.clusterIP, "203.0.113.1:53/UDP": test.external, "192.0.2.1:53/UDP": test.external,
				"*:30053/UDP": test.external,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("allowed endpoints (-want +got):\n%s", diff)
			}
		})
	}
}
