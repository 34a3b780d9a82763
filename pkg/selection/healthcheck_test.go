package selection

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// healthSlice parses a slice from "http=8080 dns=5353: 1* 2@node-2", with endpoints in endpointNotation. After "IPv6"
// the endpoints' numbers are those of IPv6 addresses.
func healthSlice(t testing.TB, number int, text string) *model.EndpointSlice {
	t.Helper()
	slice := &model.EndpointSlice{Name: objectName(fmt.Sprintf("web-%d", number)), Service: objectName("web")}
	ports, endpoints, _ := strings.Cut(text, ":")
	for word := range strings.FieldsSeq(ports) {
		if word == "IPv6" {
			slice.Family = model.IPv6
			continue
		}
		port := model.SlicePort{Protocol: model.TCP}
		if _, err := fmt.Sscanf(strings.Replace(word, "=", " ", 1), "%s %d", &port.Name, &port.Port); err != nil {
			t.Fatalf("slice %q: port %q: %v", text, word, err)
		}
		slice.Ports = append(slice.Ports, port)
	}
	for _, endpoint := range parseEndpoints(t, endpoints) {
		addr := endpoint.Addr.Addr()
		if slice.Family == model.IPv6 {
			addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: addr.As4()[3]})
		}
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addr, Endpoint: endpoint.Endpoint})
	}
	return slice
}

func TestHealthCheckCountsReadyAddressesOnThisNode(t *testing.T) {
	ipv4 := func(count int) map[model.Family]int { return map[model.Family]int{model.IPv4: count} }
	tests := map[string]struct {
		clusterIPs string
		slices     []string
		want       map[model.Family]int
	}{
		"no slice":                        {"10.96.0.1", nil, ipv4(0)},
		"ready endpoints":                 {"10.96.0.1", []string{"http=8080: 1* 2*"}, ipv4(2)},
		"not on other nodes or on none":   {"10.96.0.1", []string{"http=8080: 1* 2@node-2 3"}, ipv4(1)},
		"none, if all are on other nodes": {"10.96.0.1", []string{"http=8080: 2@node-2"}, ipv4(0)},
		"an address with two ports counts once": {
			"10.96.0.1", []string{"http=8080 dns=5353: 1* 2*"}, ipv4(2),
		},
		"an address with two ports in two slices counts once": {
			"10.96.0.1", []string{"http=8080: 1* 2*", "dns=5353: 2* 3*"}, ipv4(3),
		},
		"an address with two numbers of one port counts once": {
			"10.96.0.1", []string{"http=8080: 1*", "http=8081: 1*"}, ipv4(1),
		},
		"an address that is ready on only one port counts": {
			"10.96.0.1", []string{"http=8080: 1!*", "dns=5353: 1*"}, ipv4(1),
		},
		"an address that an old slice still lists as terminating counts": {
			"10.96.0.1", []string{"http=8080: 1t*", "http=8080: 1*"}, ipv4(1),
		},
		"a port that the Service does not have does not count": {
			"10.96.0.1", []string{"metrics=9090: 1*", "http=8080: 2*"}, ipv4(1),
		},
		"terminating endpoints do not count, even while they serve": {
			"10.96.0.1", []string{"http=8080: 1t* 2x* 3s* 4!* 5*"}, ipv4(1),
		},
		"terminating endpoints do not count without others": {"10.96.0.1", []string{"http=8080: 1t* 2t*"}, ipv4(0)},
		"endpoints that are published as ready count":       {"10.96.0.1", []string{"http=8080: 1r* 2p*"}, ipv4(2)},
		"hints have no effect":                              {"10.96.0.1", []string{"http=8080: 1*(b)[node-2] 2@node-2(a)"}, ipv4(1)},
		"each family is counted separately": {
			"10.96.0.1 fd00:96::1", []string{"http=8080: 1* 2*", "IPv6 http=8080: 1*"}, map[model.Family]int{model.IPv4: 2, model.IPv6: 1},
		},
		"a family without endpoints counts none": {
			"fd00:96::1 10.96.0.1", []string{"http=8080: 1*"}, map[model.Family]int{model.IPv4: 1, model.IPv6: 0},
		},
		"a family that the Service does not have is not reported": {
			"fd00:96::1", []string{"http=8080: 1*", "IPv6 http=8080: 3* 4@node-2"}, map[model.Family]int{model.IPv6: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster, change := model.NewCluster("node-1"), model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{}}
			service := &model.Service{
				Name: objectName("web"), ClusterIPs: parseAddrs(strings.Fields(test.clusterIPs)...), HealthCheckNodePort: 32000,
				Ports: []model.ServicePort{
					{Name: "http", Protocol: model.TCP, Port: 80}, {Name: "dns", Protocol: model.TCP, Port: 53},
				},
				ExternalTrafficLocal: true, Topology: policy.Topology{Keys: parseKeys("example.com/row")},
			}
			change.Services = map[model.ObjectName]*model.Service{service.Name: service}
			for number, text := range test.slices {
				slice := healthSlice(t, number, text)
				change.Slices[slice.Name] = slice
			}
			cluster.Apply(change)
			got, hasCheck := HealthCheckOf(NewPlanner(cluster).Decide(service.Name, model.Families))
			if !hasCheck || got.Port != 32000 {
				t.Errorf("health check on port %d, present: %v; want 32000", got.Port, hasCheck)
			}
			if diff := cmp.Diff(test.want, got.Endpoints); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAServiceWithoutAHealthCheckNodePortHasNoHealthCheck(t *testing.T) {
	cluster := newTestCluster()
	for _, name := range []string{"web", "local-only", "unknown"} {
		decisions := NewPlanner(cluster).Decide(objectName(name), model.Families)
		if check, hasCheck := HealthCheckOf(decisions); hasCheck || check.Port != 0 || check.Endpoints != nil {
			t.Errorf("%s has the health check %+v, want none", name, check)
		}
	}
}
