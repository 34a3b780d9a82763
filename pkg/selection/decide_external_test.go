package selection

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// externalCluster has four Services with external clients, whose endpoints are all on another node.
func externalCluster() *model.Cluster {
	http, dns := model.ServicePort{Name: "http", Protocol: model.TCP, Port: 80}, model.ServicePort{Name: "dns", Protocol: model.UDP, Port: 53}
	httpWithNodePort := http
	httpWithNodePort.NodePort = 30080
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for _, service := range []*model.Service{
		{Name: objectName("node-port"), ClusterIPs: parseAddrs("10.96.1.1", "fd00:96::1:1"), Ports: []model.ServicePort{httpWithNodePort, dns}},
		{
			Name: objectName("ipv6-load-balancer"), ClusterIPs: parseAddrs("10.96.1.2", "fd00:96::1:2"), Ports: []model.ServicePort{http},
			LoadBalancerIPs: parseAddrs("2001:db8::1"),
		},
		{
			Name: objectName("conflicting"), ClusterIPs: parseAddrs("10.96.1.3"), Ports: []model.ServicePort{httpWithNodePort},
			ExternalIPs: parseAddrs("10.96.1.1"), LoadBalancerIPs: parseAddrs("203.0.113.1"),
		},
		{
			Name: objectName("external-ip-is-cluster-ip"), ClusterIPs: parseAddrs("10.96.1.4"), Ports: []model.ServicePort{http},
			ExternalIPs: parseAddrs("10.96.1.4"),
		},
	} {
		service.Created, service.ExternalTrafficLocal = time.Unix(int64(len(change.Services)), 0), true
		change.Services[service.Name] = service
		slice := newSlice(service.Name.Name, []string{"10.0.0.2@node-2"})
		slice6 := newSlice(service.Name.Name+"-6", []string{"fd00::2@node-2"})
		slice6.Service, slice6.Family = service.Name, model.IPv6
		change.Slices[slice.Name], change.Slices[slice6.Name] = slice, slice6
	}
	cluster := model.NewCluster("node-1")
	cluster.Apply(change)
	return cluster
}

// externalTrafficPolicy: Local keeps connections on this node only if a frontend of the port and family is external.
func TestDecideExternalPerPortAndFamily(t *testing.T) {
	type decided struct {
		Port, Owned, Lost string
		External          bool // whether the policy applied
	}
	tests := map[string][]decided{
		"node-port": {
			{"http IPv4", "10.96.1.1:80/TCP *:30080/TCP", "", true},
			{"http IPv6", "[fd00:96::1:1]:80/TCP *:30080/TCP", "", true},
			{"dns IPv4", "10.96.1.1:53/UDP", "", false},
			{"dns IPv6", "[fd00:96::1:1]:53/UDP", "", false},
		},
		"ipv6-load-balancer": {
			{"http IPv4", "10.96.1.2:80/TCP", "", false},
			{"http IPv6", "[fd00:96::1:2]:80/TCP [2001:db8::1]:80/TCP", "", true},
		},
		"conflicting": {
			{"http IPv4", "10.96.1.3:80/TCP 203.0.113.1:80/TCP", "10.96.1.1:80/TCP *:30080/TCP", true},
		},
		"external-ip-is-cluster-ip": {
			{"http IPv4", "10.96.1.4:80/TCP", "", false},
		},
	}
	cluster := externalCluster()
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			var got []decided
			for _, decision := range NewPlanner(cluster).Decide(objectName(name), model.Families) {
				short := decided{Port: decision.Port.Name + " " + decision.Family.String(), External: decision.Selection.Local != nil}
				var owned, lost []string
				for _, frontend := range decision.Frontends {
					owned = append(owned, frontend.String())
				}
				for _, frontend := range decision.LostFrontends {
					lost = append(lost, frontend.String())
				}
				short.Owned, short.Lost = strings.Join(owned, " "), strings.Join(lost, " ")
				got = append(got, short)
				if _, outcome := decision.Selection.External(); short.External != (outcome == Drop) {
					t.Errorf("%s: the outcome for external clients is %d", short.Port, outcome)
				}
				if _, outcome := decision.Selection.ClusterIP(); outcome != Balance {
					t.Errorf("%s: the outcome for the ClusterIP is %d, but its policy is not Local", short.Port, outcome)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}
