package explain_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// web returns the Service default/web with one port.
func web() *model.Service {
	return &model.Service{
		Name:       model.ObjectName{Namespace: "default", Name: "web"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
}

func webSlice(endpoints ...model.SliceEndpoint) *model.EndpointSlice {
	return &model.EndpointSlice{
		Name:      model.ObjectName{Namespace: "default", Name: "web-1"},
		Service:   web().Name,
		Ports:     []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		Endpoints: endpoints,
	}
}

func endpoint(addr, node string, ready bool) model.SliceEndpoint {
	return model.SliceEndpoint{Addr: netip.MustParseAddr(addr), Endpoint: model.Endpoint{Node: node, Ready: ready, Serving: ready}}
}

// clusterOf returns a cluster as seen from node-a in zone a, with node-b in zone b.
func clusterOf(slice *model.EndpointSlice, services ...*model.Service) *model.Cluster {
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{},
		Slices:   map[model.ObjectName]*model.EndpointSlice{slice.Name: slice},
		Nodes: map[string]*model.Node{
			"node-a": {Name: "node-a", Labels: map[string]string{"example.com/zone": "a"}},
			"node-b": {Name: "node-b", Labels: map[string]string{"example.com/zone": "b"}},
		},
	}
	for _, service := range services {
		change.Services[service.Name] = service
	}
	cluster := model.NewCluster("node-a")
	cluster.Apply(change)
	return cluster
}

// onlyPort returns the report of the only port of default/web.
func onlyPort(t *testing.T, cluster *model.Cluster) explain.PortReport {
	t.Helper()
	ports := explain.Clients{}.Ports(cluster, explain.Query{Service: web().Name})
	if len(ports) != 1 {
		t.Fatalf("got %d ports, want 1: %+v", len(ports), ports)
	}
	return ports[0]
}

func sentence(code selection.Code, key, value string) string {
	return selection.Reason{Code: code, Key: key, Value: value}.Sentence()
}

func TestReportHasTierReasonAndExclusions(t *testing.T) {
	service := web()
	service.Topology.Keys = []policy.Key{"example.com/zone"}
	service.AffinityTimeout = 3 * time.Hour
	got := onlyPort(t, clusterOf(webSlice(endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)), service))
	want := explain.PortReport{
		Node: "node-a", Service: "default/web", Port: "http", Number: 80, Protocol: "TCP", Family: "IPv4",
		Frontends: []explain.Frontend{{Address: "10.96.0.10:80", Kind: "ClusterIP"}},
		Outcome:   "balance", Message: "New connections to the ClusterIP go to one endpoint.",
		Traffic: []explain.Traffic{{
			To: "ClusterIP", From: "everybody", Frontends: []string{"10.96.0.10:80"}, Choice: "cluster",
			Outcome: "balance", Message: "New connections to the ClusterIP go to one endpoint.",
		}},
		Cluster: explain.Choice{
			Endpoints: []string{"10.244.1.5:8080"}, Tier: "example.com/zone",
			Reason: "MatchedTopologyKey", Message: sentence(selection.MatchedTopologyKey, "example.com/zone", "a"),
			Shares: []explain.Share{{Key: "example.com/zone", Value: "a", Share: 1, Endpoints: 1, Used: 1}},
			Slots:  map[string]int{"10.244.1.5:8080": 1},
		},
		Excluded: []explain.Excluded{{
			Endpoint: "10.244.2.5:8080",
			Reason:   "OtherTopologyValue", Message: sentence(selection.OtherTopologyValue, "example.com/zone", "b"),
		}},
		AffinitySeconds: 10800,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("port (-want +got):\n%s", diff)
	}
}

func TestLocalPolicyHasItsOwnChoice(t *testing.T) {
	service := web()
	service.InternalTrafficLocal = true
	got := onlyPort(t, clusterOf(webSlice(endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)), service))
	want := &explain.Choice{
		Endpoints: []string{"10.244.1.5:8080"}, Tier: "node",
		Reason: "OnThisNode", Message: sentence(selection.OnThisNode, "internalTrafficPolicy", ""),
		Shares: []explain.Share{{Key: "node", Share: 1, Endpoints: 1, Used: 1}}, Slots: map[string]int{"10.244.1.5:8080": 1},
	}
	if diff := cmp.Diff(want, got.Local); diff != "" {
		t.Errorf("local (-want +got):\n%s", diff)
	}
}

func TestPortsAreInAFixedOrderAndOnlyThoseRequested(t *testing.T) {
	dual := web()
	dual.ClusterIPs = append(dual.ClusterIPs, netip.MustParseAddr("fd00:10:96::10"))
	dual.Ports = append(dual.Ports, model.ServicePort{Name: "dns", Protocol: model.UDP, Port: 53})
	api := web()
	api.Name.Name, api.ClusterIPs = "api", []netip.Addr{netip.MustParseAddr("10.96.0.11")}
	cluster := clusterOf(webSlice(), dual, api)

	tests := map[string]struct {
		query string // empty for the zero Query
		want  []string
	}{
		"without a query, all ports": {"", []string{
			"default/api http IPv4 10.96.0.11:80", "default/web http IPv4 10.96.0.10:80", "default/web http IPv6 [fd00:10:96::10]:80",
			"default/web dns IPv4 10.96.0.10:53", "default/web dns IPv6 [fd00:10:96::10]:53",
		}},
		"a Service":         {"default/api", []string{"default/api http IPv4 10.96.0.11:80"}},
		"a port":            {"default/web:53", []string{"default/web dns IPv4 10.96.0.10:53", "default/web dns IPv6 [fd00:10:96::10]:53"}},
		"an unknown port":   {"default/web:443", nil},
		"a missing Service": {"default/nothing", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var query explain.Query
			if test.query != "" {
				query = mustParse(t, test.query)
			}
			var got []string
			for _, port := range (explain.Clients{}).Ports(cluster, query) {
				got = append(got, port.Service+" "+port.Port+" "+port.Family+" "+port.Frontends[0].Address)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
		})
	}
}

// TestABoundedLoadIsSplit: the only endpoint on this node gets connections up to its bound, and the others get the
// rest.
func TestABoundedLoadIsSplit(t *testing.T) {
	service := web()
	service.Topology = policy.Topology{Keys: []policy.Key{"example.com/zone", policy.AnyNode}, MaxLoad: 150}
	cluster := clusterOf(webSlice(endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true),
		endpoint("10.244.2.6", "node-b", true), endpoint("10.244.2.7", "node-b", true)), service)
	cluster.Apply(model.Change{AllNodes: new(true)})
	got := onlyPort(t, cluster).Cluster
	want := []explain.Share{
		{Key: "example.com/zone", Value: "a", Share: 0.75, Endpoints: 1, Used: 1}, {Key: "*", Share: 0.25, Endpoints: 4, Used: 3},
	}
	if diff := cmp.Diff(want, got.Shares); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	sum := 0
	for _, endpoint := range got.Endpoints {
		sum += got.Slots[endpoint]
	}
	if near := got.Slots["10.244.1.5:8080"]; near*4 < sum*3-8 || near*4 > sum*3+8 || len(got.Endpoints) != 4 {
		t.Errorf("the near endpoint has %d of %d slots, and there are %d endpoints; want about 3 of 4 slots, and 4 endpoints", near, sum,
			len(got.Endpoints))
	}
	if got.Tier != "example.com/zone" || got.Reason != "Spillover" {
		t.Errorf("got %s, %s", got.Tier, got.Reason)
	}
}

// TestALoadBoundReportsWhatItPrevents checks that explain reports which endpoints would be overloaded without the load
// bound, by how much, and with which demand.
func TestALoadBoundReportsWhatItPrevents(t *testing.T) {
	assumed := "Demand is assumed. Each Node counts as one client, unless its labels say otherwise."
	for name, test := range map[string]struct {
		keys            []policy.Key
		clients         []string
		nearby          int // number of endpoints on this node; the other node has three
		load            map[string]explain.EndpointLoad
		message, demand string
		warnings        int
	}{
		"one endpoint would be overloaded": {
			keys: []policy.Key{"example.com/zone", policy.AnyNode}, nearby: 1, demand: assumed,
			load: map[string]explain.EndpointLoad{
				"10.244.1.0:8080": {1.5, 2}, "10.244.2.0:8080": {0.833, 0.667}, "10.244.2.1:8080": {0.833, 0.667}, "10.244.2.2:8080": {0.833, 0.667},
			},
			message: "Without the load bound, the expected load of 10.244.1.0:8080 would be 2.00 times the mean; with the bound, the highest " +
				"expected load is 1.50 times.",
		},
		"no endpoint would be overloaded": {
			keys: []policy.Key{"example.com/zone", policy.AnyNode}, nearby: 3, demand: assumed,
			message: "No endpoint needs the load bound: without it, the expected load of the busiest, 10.244.1.0:8080, " +
				"would be 1.00 times the mean.",
		},
		"all clients are on this node": {
			keys: []policy.Key{"example.com/zone", policy.AnyNode}, nearby: 2, clients: []string{"default/api", "default/none"},
			message: "Without the load bound, 2 endpoints would exceed it. The busiest is 10.244.1.0:8080: its expected load would be 2.50 times " +
				"the mean; with the bound, the highest expected load is 1.50 times.",
			demand: "Demand is assumed. The clients are the 2 ready endpoints of default/api and default/none.", warnings: 1,
		},
		"no client is ready": {
			keys: []policy.Key{"example.com/zone", policy.AnyNode}, nearby: 3, clients: []string{"default/none"},
			message: "No endpoint needs the load bound: without it, the expected load of the busiest, 10.244.1.0:8080, " +
				"would be 1.00 times the mean.",
			demand: "Demand is assumed. No endpoint of default/none is ready on a Node, so each Node counts as one client.", warnings: 1,
		},
		"no usable endpoint": {
			keys: []policy.Key{"example.com/rack"}, nearby: 1, load: map[string]explain.EndpointLoad{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			service := web()
			service.Topology = policy.Topology{Keys: test.keys, MaxLoad: 150, Clients: test.clients}
			slice := webSlice()
			for i := range test.nearby {
				slice.Endpoints = append(slice.Endpoints, endpoint(fmt.Sprint("10.244.1.", i), "node-a", true))
			}
			for i := range 3 {
				slice.Endpoints = append(slice.Endpoints, endpoint(fmt.Sprint("10.244.2.", i), "node-b", true))
			}
			cluster := clusterOf(slice, service)
			api := model.ObjectName{Namespace: "default", Name: "api"}
			clients := model.EndpointSlice{Name: api, Service: api, Endpoints: []model.SliceEndpoint{
				endpoint("10.244.1.8", "node-a", true), endpoint("10.244.1.9", "node-a", true), endpoint("10.244.2.9", "node-b", false),
			}}
			cluster.Apply(model.Change{AllNodes: new(true), Slices: map[model.ObjectName]*model.EndpointSlice{api: &clients}})
			port := onlyPort(t, cluster)
			if port.Load == nil || port.Load.MaxLoad != 1.5 || len(port.Load.Clients) != len(test.clients) {
				t.Fatalf("load %+v does not have the bound and the clients of the Service", port.Load)
			}
			if port.Load.Message != test.message || port.Load.Demand != test.demand || len(port.Warnings) != test.warnings {
				t.Errorf("got\n%s\n%s\n%q\nwant\n%s\n%s\nand %d warnings", port.Load.Message, port.Load.Demand, port.Warnings,
					test.message, test.demand, test.warnings)
			}
			if diff := cmp.Diff(test.load, port.Load.Endpoints); test.load != nil && diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
		})
	}
}
