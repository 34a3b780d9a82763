package ruleset_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// classes are the classes of connections to each kind of frontend, in short form.
type classes struct{ clusterIP, loadBalancerIP, externalIP, nodePort string }

// external returns classes that are equal for all frontends but the ClusterIP, as they always are.
func external(clusterIP, others string) classes { return classes{clusterIP, others, others, others} }

func classesOf(service *model.Service, port ruleset.Port) classes {
	var got classes
	byKind := map[model.FrontendKind]*string{
		model.ClusterIP: &got.clusterIP, model.LoadBalancerIP: &got.loadBalancerIP,
		model.ExternalIP: &got.externalIP, model.NodePort: &got.nodePort,
	}
	for _, wanted := range service.Frontends(service.Ports[0], port.ID.Family) {
		for _, frontend := range port.Frontends {
			if frontend.Frontend == wanted.Frontend {
				*byKind[wanted.Kind] = formatNumber(uint32(frontend.Class))
			}
		}
	}
	return got
}

// TestTheClassOfEveryFrontend under each pair of policies, wherever the endpoints are. The first of a pair is
// internalTrafficPolicy, the second externalTrafficPolicy.
func TestTheClassOfEveryFrontend(t *testing.T) {
	nowhere, elsewhere, here := []pod(nil), podsOnNode2(1, 2), podsOnNode1(3)
	everywhere := slices.Concat(here, elsewhere)
	for name, test := range map[string]struct {
		internalLocal, externalLocal bool
		keys                         []policy.Key // that no node has
		pods                         []pod
		want                         classes
	}{
		"Cluster and Cluster: all endpoints":               {false, false, nil, everywhere, external("class/3", "class/3")},
		"Cluster and Cluster, none on this node":           {false, false, nil, elsewhere, external("class/2", "class/2")},
		"Cluster and Cluster, none at all":                 {false, false, nil, nowhere, external("refuse", "refuse")},
		"Cluster and Cluster, none allowed by keys":        {false, false, noKeys, everywhere, external("refuse", "refuse")},
		"Local and Cluster: ClusterIP local, others all":   {true, false, nil, everywhere, external("class/1", "class/3")},
		"Local and Cluster, none on this node":             {true, false, nil, elsewhere, external("drop", "class/2")},
		"Local and Cluster, none at all":                   {true, false, nil, nowhere, external("refuse", "refuse")},
		"Local and Cluster, none allowed by keys":          {true, false, noKeys, everywhere, external("class/1", "refuse")},
		"Cluster and Local: others are split":              {false, true, nil, everywhere, external("class/3", "class/3-local/1")},
		"Cluster and Local, none on other nodes":           {false, true, nil, here, external("class/1", "class/1-local/1")},
		"Cluster and Local, none on this node":             {false, true, nil, elsewhere, external("class/2", "class/2-local/0")},
		"Cluster and Local, none at all":                   {false, true, nil, nowhere, external("refuse", "refuse")},
		"Cluster and Local, none allowed by keys":          {false, true, noKeys, everywhere, external("refuse", "class/0-local/1")},
		"Cluster and Local, none local or allowed by keys": {false, true, noKeys, elsewhere, external("refuse", "class/0-local/0")},
		"Local and Local: internal clients use all":        {true, true, nil, everywhere, external("class/1", "class/3-local/1")},
		"Local and Local, none on this node":               {true, true, nil, elsewhere, external("drop", "class/2-local/0")},
		"Local and Local, none at all":                     {true, true, nil, nowhere, external("refuse", "refuse")},
		"Local and Local, none local or allowed by keys":   {true, true, noKeys, elsewhere, external("drop", "class/0-local/0")},
	} {
		t.Run(name, func(t *testing.T) {
			service := everyKind("web", 1)
			service.InternalTrafficLocal, service.ExternalTrafficLocal = test.internalLocal, test.externalLocal
			service.Topology.Keys = test.keys
			for _, port := range desiredService(service, test.pods...).Ports {
				if diff := cmp.Diff(test.want, classesOf(&service, port), cmp.AllowUnexported(classes{})); diff != "" {
					t.Errorf("classes in %s (-want +got):\n%s", port.ID.Family, diff)
				}
			}
		})
	}
}

// noKeys are topology keys that match no endpoint, because no node has them.
var noKeys = []policy.Key{"example.com/rack"}

// TestAnExternalPolicyMeansNothingToAServiceWithoutExternalFrontends, such as one whose load balancer has no address
// yet.
func TestAnExternalPolicyMeansNothingToAServiceWithoutExternalFrontends(t *testing.T) {
	service := everyKind("web", 1)
	service.LoadBalancerIPs, service.ExternalIPs, service.ExternalTrafficLocal = nil, nil, true
	service.Ports[0].NodePort = 0
	for _, port := range desiredService(service, slices.Concat(podsOnNode1(1), podsOnNode2(2))...).Ports {
		if diff := cmp.Diff(classes{clusterIP: "class/2"}, classesOf(&service, port), cmp.AllowUnexported(classes{})); diff != "" {
			t.Errorf("classes in %s (-want +got):\n%s", port.ID.Family, diff)
		}
		if len(port.Local) > 0 {
			t.Errorf("the port has the local endpoints %v, want none", port.Local)
		}
	}
}

// TestLocalEndpointsOfAPort, for hairpin and for Local policies.
func TestLocalEndpointsOfAPort(t *testing.T) {
	for name, test := range map[string]struct {
		change                 func(*model.Service)
		cluster, local, onNode []int // numbers of pods
	}{
		"without a policy":                 {func(*model.Service) {}, []int{1, 2, 3}, nil, []int{1, 2}},
		"with an external policy":          {func(s *model.Service) { s.ExternalTrafficLocal = true }, []int{1, 2, 3}, []int{1, 2}, []int{1, 2}},
		"with an internal policy":          {func(s *model.Service) { s.InternalTrafficLocal = true }, []int{1, 2, 3}, []int{1, 2}, []int{1, 2}},
		"with keys that allow no endpoint": {func(s *model.Service) { s.Topology.Keys = noKeys }, nil, nil, nil},
		"with such keys and a policy that ignores them": {func(s *model.Service) {
			s.Topology.Keys, s.ExternalTrafficLocal = noKeys, true
		}, nil, []int{1, 2}, []int{1, 2}},
		"with an internal policy and no external frontend": {func(s *model.Service) {
			s.InternalTrafficLocal, s.LoadBalancerIPs, s.ExternalIPs, s.Ports[0].NodePort = true, nil, nil, 0
		}, nil, []int{1, 2}, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			service := everyKind("web", 1)
			test.change(&service)
			for _, port := range desiredService(service, slices.Concat(podsOnNode1(1, 2), podsOnNode2(3))...).Ports {
				want := [][]netip.AddrPort{addrsOf(port, test.cluster), addrsOf(port, test.local), addrsOf(port, test.onNode)}
				if diff := cmp.Diff(want, [][]netip.AddrPort{port.Cluster, port.Local, port.OnNode}, comparePorts); diff != "" {
					t.Errorf("endpoints of all nodes, kept local, and on this node in %s (-want +got):\n%s", port.ID.Family, diff)
				}
			}
		})
	}
}

// TestAnEndpointOwnsASlotForEachTimeItIsChosen, and is still one endpoint on this node.
func TestAnEndpointOwnsASlotForEachTimeItIsChosen(t *testing.T) {
	service := withAffinityAndLocalPolicy(everyKind("web", 1))
	for _, decision := range decisionsFor(service, slices.Concat(podsOnNode1(1, 2), podsOnNode2(3))...) {
		local1, local2, remote := decision.Endpoints[0], decision.Endpoints[1], decision.Endpoints[2]
		decision.Selection.Cluster.Endpoints = []model.PortEndpoint{local2, local2, remote, remote, local2}
		decision.Selection.Local.Endpoints = []model.PortEndpoint{local1, local1, local2}
		port := ruleset.NewPort(decision)
		want := [][]netip.AddrPort{
			addrsOf(port, []int{2, 2, 3, 3, 2}), addrsOf(port, []int{1, 1, 2}), addrsOf(port, []int{1, 2}),
		}
		if diff := cmp.Diff(want, [][]netip.AddrPort{port.Cluster, port.Local, port.OnNode}, comparePorts); diff != "" {
			t.Errorf("endpoints of all nodes, kept local, and on this node in %s (-want +got):\n%s", port.ID.Family, diff)
		}
		if diff := cmp.Diff(external("class/5", "class/5-local/3"), classesOf(&service, port), cmp.AllowUnexported(classes{})); diff != "" {
			t.Errorf("classes in %s (-want +got):\n%s", port.ID.Family, diff)
		}
	}
}

func addrsOf(port ruleset.Port, numbers []int) []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, number := range numbers {
		addrs = append(addrs, netip.AddrPortFrom(pod{number: number}.addr(port.ID.Family), 8080))
	}
	return addrs
}

// TestMoreEndpointsThanSlotsAreSkipped, and the class counts the others.
func TestMoreEndpointsThanSlotsAreSkipped(t *testing.T) {
	service := everyKind("web", 1)
	service.ClusterIPs, service.ExternalTrafficLocal = service.ClusterIPs[:1], true
	var pods []pod
	for number := range model.MaxPortEndpoints + 1 {
		node := "node-2"
		if number <= ruleset.MaxLocalSlots {
			node = node1.Name
		}
		pods = append(pods, pod{node, number})
	}
	port := desiredService(service, pods...).Ports[0]
	if len(port.Cluster) != model.MaxPortEndpoints || len(port.Local) != ruleset.MaxLocalSlots {
		t.Errorf("%d slots and %d local ones, want %d and %d", len(port.Cluster), len(port.Local), model.MaxPortEndpoints, ruleset.MaxLocalSlots)
	}
	want := external("class/32768", "class/32768-local/4095")
	if diff := cmp.Diff(want, classesOf(&service, port), cmp.AllowUnexported(classes{})); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
}

// TestSourceRangesOfALoadBalancerAddress: source ranges restrict no other frontend, and no other family.
func TestSourceRangesOfALoadBalancerAddress(t *testing.T) {
	ranges := []string{"192.0.2.0/25", "192.0.2.200/32"}
	nodeAt := func(addr string) model.Node {
		return model.Node{Name: node1.Name, Addresses: []netip.Addr{netip.MustParseAddr(addr)}}
	}
	for name, test := range map[string]struct {
		node       model.Node
		change     func(*model.Service)
		restricted []string
		sources    []string
	}{
		"the ranges":                {node1, func(*model.Service) {}, []string{"203.0.113.1:80"}, ranges},
		"a node outside the ranges": {nodeAt("192.0.2.199"), func(*model.Service) {}, []string{"203.0.113.1:80"}, ranges},
		"a node in a range may use the address as its source": {
			nodeAt("192.0.2.99"), func(*model.Service) {}, []string{"203.0.113.1:80"}, append(ranges[:2:2], "203.0.113.1/32"),
		},
		"a node in a range that contains the address adds nothing": {nodeAt("203.0.113.99"), func(s *model.Service) {
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		}, []string{"203.0.113.1:80"}, []string{"203.0.113.0/24"}},
		"without a range of the family: all clients": {node1, func(s *model.Service) { s.SourceRanges = s.SourceRanges[2:] }, nil, nil},
		"without ranges: all clients":                {node1, func(s *model.Service) { s.SourceRanges = nil }, nil, nil},
		"without an address: no restriction":         {node1, func(s *model.Service) { s.LoadBalancerIPs = nil }, nil, nil},
		"an external IP that is also a load balancer IP": {node1, func(s *model.Service) {
			s.ExternalIPs = s.LoadBalancerIPs
		}, []string{"203.0.113.1:80"}, ranges},
	} {
		t.Run(name, func(t *testing.T) {
			service := everyKind("web", 1)
			test.change(&service)
			decision := decisionsFor(service)[0]
			decision.Sources = service.AllowedSources(decision.Family, test.node)
			port := ruleset.NewPort(decision)
			var restricted, sources []string
			for _, frontend := range port.Frontends {
				if frontend.Restricted {
					restricted = append(restricted, netip.AddrPortFrom(frontend.Addr, frontend.Port).String())
				}
			}
			for _, prefix := range port.Sources {
				sources = append(sources, prefix.String())
			}
			if diff := cmp.Diff(test.restricted, restricted); diff != "" {
				t.Errorf("restricted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.sources, sources); restricted != nil && diff != "" {
				t.Errorf("sources (-want +got):\n%s", diff)
			}
		})
	}
}
