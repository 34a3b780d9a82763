package ruleset_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

var comparePorts = cmp.Options{
	cmpopts.IgnoreUnexported(ruleset.Port{}), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}), cmpopts.EquateEmpty(),
}

// decide returns the decision about a Service with one port and one slice on node-1.
func decide(t testing.TB, service model.Service, family model.Family, endpoints ...model.SliceEndpoint) selection.Decision {
	t.Helper()
	service.Name = serviceName("web")
	service.ClusterIPs = []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")}
	service.Ports = []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}
	slice := &model.EndpointSlice{
		Name: serviceName("web-1"), Service: service.Name, Family: family,
		Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}}, Endpoints: endpoints,
	}
	cluster := model.NewCluster("node-1")
	cluster.Apply(model.Change{
		Services: map[model.ObjectName]*model.Service{service.Name: &service},
		Slices:   map[model.ObjectName]*model.EndpointSlice{slice.Name: slice},
	})
	decisions := selection.NewPlanner(cluster).Decide(service.Name, []model.Family{family})
	if len(decisions) != 1 {
		t.Fatalf("%d decisions, want 1", len(decisions))
	}
	return decisions[0]
}

// node1 is the node for which the tests decide.
var node1 = model.Node{Name: "node-1", Labels: map[string]string{"kubernetes.io/hostname": "node-1"}}

// withLocalPolicy sets the port's endpoints to those on this node, where internalTrafficPolicy keeps connections.
func withLocalPolicy(port ruleset.Port) ruleset.Port {
	port.Local, port.OnNode, port.Cluster = port.Cluster, port.Cluster, nil
	port.Frontends[0].Local = true
	if len(port.Local) == 0 {
		port.Frontends[0].Class = ruleset.DropClass
	}
	return port
}

func readyEndpoint(addr, node string) model.SliceEndpoint {
	return model.SliceEndpoint{Addr: netip.MustParseAddr(addr), Endpoint: model.Endpoint{Node: node, Ready: true, Serving: true}}
}

func TestNewPort(t *testing.T) {
	const ipv6Endpoint = "[fd00:244::1]:8080"
	tests := map[string]struct {
		service   model.Service
		family    model.Family
		endpoints []model.SliceEndpoint
		want      ruleset.Port
	}{
		"endpoints on this node are local": {
			endpoints: []model.SliceEndpoint{readyEndpoint("10.244.1.1", "node-1"), readyEndpoint("10.244.2.2", "node-2")},
			want:      local(portOf("web", "10.96.0.1", first, second), 1),
		},
		"the other family": {
			family: model.IPv6, endpoints: []model.SliceEndpoint{readyEndpoint("fd00:244::1", "node-1")},
			want: local(portOf("web", "fd00:96::1", ipv6Endpoint), 1),
		},
		"session affinity": {
			service: model.Service{AffinityTimeout: 3 * time.Hour}, endpoints: []model.SliceEndpoint{readyEndpoint("10.244.1.1", "node-2")},
			want: sticky(portOf("web", "10.96.0.1", first), 3*time.Hour),
		},
		// There is no endpoint that a client could keep.
		"without endpoints it refuses, and no client has affinity": {
			service: model.Service{AffinityTimeout: 3 * time.Hour},
			want:    sticky(portOf("web", "10.96.0.1"), 3*time.Hour),
		},
		"with endpoints only on other nodes, an internal policy drops, and no client has affinity": {
			service:   model.Service{AffinityTimeout: 3 * time.Hour, InternalTrafficLocal: true},
			endpoints: []model.SliceEndpoint{readyEndpoint("10.244.2.2", "node-2")},
			want:      sticky(withLocalPolicy(portOf("web", "10.96.0.1")), 3*time.Hour),
		},
		"an internal policy keeps the endpoints on this node": {
			service:   model.Service{InternalTrafficLocal: true},
			endpoints: []model.SliceEndpoint{readyEndpoint("10.244.1.1", "node-1"), readyEndpoint("10.244.2.2", "node-2")},
			want:      withLocalPolicy(portOf("web", "10.96.0.1", first)),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ruleset.NewPort(decide(t, test.service, test.family, test.endpoints...))
			if diff := cmp.Diff(test.want, got, comparePorts); diff != "" {
				t.Errorf("port (-want +got):\n%s", diff)
			}
			planned := withNumbers(t, serviceOf(got)).Ports[0]
			chains, sets := planned.Chains(bothFamilies), planned.Sets()
			if !got.Frontends[0].Class.IsBalanced() && (len(chains)+len(sets) > 0 || planned.AffinityOf() != nil) {
				t.Errorf("a port that does not balance has the chains %v, the sets %v and the affinity %+v", chains, sets, planned.AffinityOf())
			}
		})
	}
}

func TestNewPortOwnsNoFrontendOfAnother(t *testing.T) {
	decision := decide(t, model.Service{}, model.IPv4, readyEndpoint("10.244.1.1", "node-2"))
	decision.LostFrontends = []model.LostFrontend{{PortFrontend: decision.Frontends[0], Owner: serviceName("older")}}
	decision.Frontends = nil
	got := ruleset.NewPort(decision)
	if diff := cmp.Diff(withoutFrontends(portOf("web", "10.96.0.1", first)), got, comparePorts); diff != "" {
		t.Errorf("port (-want +got):\n%s", diff)
	}
}
