package selection

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// newTestCluster returns a cluster from the view of node-1. Service web is dual-stack with two ports. Service late is
// younger, and also requests web's IPv4 address.
func newTestCluster() *model.Cluster {
	cluster := model.NewCluster("node-1")
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{},
		Slices:   map[model.ObjectName]*model.EndpointSlice{},
		Nodes:    map[string]*model.Node{},
	}
	http := model.ServicePort{Name: "http", Protocol: model.TCP, Port: 80}
	for _, service := range []*model.Service{
		{
			Created: time.Unix(1, 0), Name: objectName("web"), ClusterIPs: parseAddrs("fd00:96::1", "10.96.0.1"),
			Ports:    []model.ServicePort{http, {Name: "dns", Protocol: model.UDP, Port: 53}},
			Topology: policy.Topology{Keys: []policy.Key{policy.Zone}},
		},
		{
			Created: time.Unix(2, 0), Name: objectName("late"), ClusterIPs: parseAddrs("10.96.0.1", "fd00:96::2"),
			Ports: []model.ServicePort{http},
		},
		{Name: objectName("local-only"), ClusterIPs: parseAddrs("10.96.0.3"), Ports: []model.ServicePort{http}, InternalTrafficLocal: true},
		{Name: objectName("portless"), ClusterIPs: parseAddrs("10.96.0.4")},
	} {
		change.Services[service.Name] = service
	}
	slicesOf := map[string][]string{
		"web":        {"10.0.0.1@node-1", "10.0.0.2@node-2", "10.0.0.3@node-3"},
		"web-6":      {"fd00::1@node-1"},
		"local-only": {"10.0.0.4@node-2"},
		"headless":   {"10.0.0.5@node-1"},
	}
	for name, texts := range slicesOf {
		slice := newSlice(name, texts)
		change.Slices[slice.Name] = slice
	}
	for name, labels := range map[string]string{"node-1": "zone=a", "node-2": "zone=a", "node-3": "zone=b"} {
		change.Nodes[name] = &model.Node{Name: name, Labels: parseLabels(labels)}
	}
	cluster.Apply(change)
	return cluster
}

func objectName(name string) model.ObjectName {
	return model.ObjectName{Namespace: "default", Name: name}
}

func parseAddrs(texts ...string) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range texts {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs
}

// newSlice serves http on 8080 and dns on 5353. Its Service has the slice's name without the family.
func newSlice(name string, endpoints []string) *model.EndpointSlice {
	slice := &model.EndpointSlice{Name: objectName(name), Service: objectName(name), Ports: []model.SlicePort{
		{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 5353},
	}}
	if name == "web-6" {
		slice.Service, slice.Family = objectName("web"), model.IPv6
	}
	for _, text := range endpoints {
		addr, node, _ := strings.Cut(text, "@")
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: netip.MustParseAddr(addr), Endpoint: model.Endpoint{Node: node, Ready: true, Serving: true},
		})
	}
	return slice
}

// decided summarizes a decision.
type decided struct {
	Port        string
	Owned, Lost string
	Total, Used int // endpoints
	Outcome     Outcome
}

func summarize(decision Decision) decided {
	choice, outcome := decision.Selection.ClusterIP()
	short := decided{
		Port:  fmt.Sprintf("%s %s", decision.Port.Name, decision.Family),
		Total: len(decision.Endpoints), Used: len(choice.Endpoints), Outcome: outcome,
	}
	for _, frontend := range decision.Frontends {
		short.Owned += frontend.String()
	}
	for _, lost := range decision.LostFrontends {
		short.Lost += lost.String() + " to " + lost.Owner.Name
	}
	return short
}

func TestDecide(t *testing.T) {
	tests := map[string]struct {
		service  string
		families []model.Family
		want     []decided
	}{
		"every port in every family, in the order of the ports": {"web", model.Families, []decided{
			{Port: "http IPv4", Owned: "10.96.0.1:80/TCP", Total: 3, Used: 2},
			{Port: "http IPv6", Owned: "[fd00:96::1]:80/TCP", Total: 1, Used: 1},
			{Port: "dns IPv4", Owned: "10.96.0.1:53/UDP", Total: 3, Used: 2},
			{Port: "dns IPv6", Owned: "[fd00:96::1]:53/UDP", Total: 1, Used: 1},
		}},
		"only the requested families": {"web", []model.Family{model.IPv6}, []decided{
			{Port: "http IPv6", Owned: "[fd00:96::1]:80/TCP", Total: 1, Used: 1},
			{Port: "dns IPv6", Owned: "[fd00:96::1]:53/UDP", Total: 1, Used: 1},
		}},
		"a frontend that an older Service owns is lost, only in its family": {"late", model.Families, []decided{
			{Port: "http IPv4", Lost: "10.96.0.1:80/TCP to web", Outcome: Refuse},
			{Port: "http IPv6", Owned: "[fd00:96::2]:80/TCP", Outcome: Refuse},
		}},
		"only the families in which it has a ClusterIP": {"local-only", model.Families, []decided{
			{Port: "http IPv4", Owned: "10.96.0.3:80/TCP", Total: 1, Outcome: Drop},
		}},
		"a Service without ports has no decisions": {"portless", model.Families, nil},
		"an unknown Service has none":              {"unknown", model.Families, nil},
		"slices without a Service":                 {"headless", model.Families, nil},
		"no families, no decisions":                {"web", nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []decided
			for _, decision := range NewPlanner(newTestCluster()).Decide(objectName(test.service), test.families) {
				if decision.Service.Name.Name != test.service {
					t.Errorf("decision is about %s, want %s", decision.Service.Name, test.service)
				}
				got = append(got, summarize(decision))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideUsesTheClustersOwnNode(t *testing.T) {
	cluster := newTestCluster()
	local := NewPlanner(cluster).Decide(objectName("web"), []model.Family{model.IPv4})[0]
	choice, _ := local.Selection.ClusterIP()
	if got := numbers(choice.Endpoints); got != "1 2" || choice.Tier != string(policy.Zone) {
		t.Errorf("in zone a: endpoints %q in tier %q, want %q in the tier of the zone", got, choice.Tier, "1 2")
	}
	cluster.Apply(model.Change{Nodes: map[string]*model.Node{"node-1": {Name: "node-1", Labels: parseLabels("zone=b")}}})
	moved := NewPlanner(cluster).Decide(objectName("web"), []model.Family{model.IPv4})[0]
	choice, _ = moved.Selection.ClusterIP()
	if got := numbers(choice.Endpoints); got != "1 3" {
		t.Errorf("after the node and its endpoint moved to zone b: endpoints %q, want %q", got, "1 3")
	}
	for decision, zone := range map[*Decision]string{&local: "a", &moved: "b"} {
		if got := decision.Viewpoint.Node.Labels[string(policy.Zone)]; decision.Viewpoint.Node.Name != "node-1" || got != zone {
			t.Errorf("the decision is for %s in zone %q, want node-1 in zone %q", decision.Viewpoint.Node.Name, got, zone)
		}
	}
}
