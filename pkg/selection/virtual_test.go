package selection

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestVirtualEndpoints: an endpoint that is a ClusterIP, or may become one, gets no connections, keeps no flows, and
// does not count for load balancers that ask for endpoints here. It is left out with a reason of its own. DNS may
// return it, because a client that dials it then dials a ClusterIP.
func TestVirtualEndpoints(t *testing.T) {
	const clusterIP, inRange, ofMachine = "10.96.0.2@node-1", "10.97.0.9@node-1", "10.0.0.1@node-2"
	isClusterIP := `10.96.0.2 is the ClusterIP of Service "default/other", and nothing can be sent on to a ClusterIP.`
	isInRange := `10.97.0.9 is in the ServiceCIDR "10.97.0.0/16", and nothing can be sent on to a ClusterIP.`
	for name, test := range map[string]struct {
		edit      func(*model.Service)
		endpoints []string
		used      string
		reason    Code
		left      []string
		local     int // endpoints in the answer to a load balancer
	}{
		"beside another endpoint": {nil, []string{clusterIP, inRange, ofMachine}, "10.0.0.1", AllEndpoints, []string{isClusterIP, isInRange}, 0},
		"alone":                   {nil, []string{clusterIP}, "", OnlyVirtualIPs, []string{isClusterIP}, 0},
		"two of a kind":           {nil, []string{inRange, clusterIP}, "", OnlyVirtualIPs, []string{isClusterIP, isInRange}, 0},
		"on this node, which alone is allowed": {
			func(s *model.Service) { s.InternalTrafficLocal = true }, []string{clusterIP, ofMachine}, "", NoneOnThisNode, []string{isClusterIP}, 0},
		"the Service's own": {
			func(s *model.Service) { s.ClusterIPs = decideAddrs("10.96.0.2") }, []string{clusterIP, ofMachine}, "10.0.0.1", AllEndpoints,
			[]string{`10.96.0.2 is the ClusterIP of Service "default/other", and nothing can be sent on to a ClusterIP.`}, 0},
		"none": {nil, []string{"10.0.0.2@node-1", ofMachine}, "10.0.0.1 10.0.0.2", AllEndpoints, nil, 1},
		"of a headless Service": {
			func(s *model.Service) { s.ClusterIPs, s.IsHeadless = nil, true }, []string{clusterIP}, "10.96.0.2", AllEndpoints, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			web := &model.Service{
				Name: decideName("web"), ClusterIPs: decideAddrs("10.96.0.1"), HealthCheckNodePort: 32000,
				Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
			}
			if test.edit != nil {
				test.edit(web)
			}
			other := &model.Service{Name: decideName("other"), ClusterIPs: decideAddrs("10.96.0.2"), Ports: web.Ports}
			cluster := model.NewCluster("node-1")
			cluster.Apply(model.Change{
				Services:     map[model.ObjectName]*model.Service{web.Name: web, other.Name: other},
				Slices:       map[model.ObjectName]*model.EndpointSlice{web.Name: decideSlice("web", test.endpoints)},
				ServiceCIDRs: map[string][]netip.Prefix{"more": {netip.MustParsePrefix("10.97.0.0/16")}},
			})
			decision := NewPlanner(cluster).Decide(web.Name, []model.Family{model.IPv4})[0]
			choice, _ := decision.Selection.ClusterIP()
			if used := addressesOf(choice.Endpoints); used != test.used || choice.Reason.Code != test.reason {
				t.Errorf("used are %q, %s; want %q, %s", used, choice.Reason.Code, test.used, test.reason)
			}
			var left, told []string
			for _, exclusion := range decision.Exclusions() {
				if exclusion.Reason.Code == EndpointIsClusterIP || exclusion.Reason.Code == EndpointInServiceCIDR {
					left = append(left, exclusion.Reason.Sentence())
				}
			}
			for _, finding := range decision.Findings() {
				if finding.Code == model.PartsLeftOut {
					told = append(told, finding.Reason)
				}
			}
			if diff := cmp.Diff(test.left, left); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.left, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			anywhere, _ := decision.Answering()
			for _, addr := range anywhere {
				if decision.Virtual[addr.Addr()] != (model.VirtualIP{}) {
					t.Errorf("%s may go on answering flows", addr)
				}
			}
			if check, _ := HealthCheckOf(NewPlanner(cluster).Decide(web.Name, model.Families)); check.Endpoints[model.IPv4] != test.local {
				t.Errorf("load balancers are told of %d endpoints, want %d", check.Endpoints[model.IPv4], test.local)
			}
		})
	}
}

func addressesOf(endpoints []model.PortEndpoint) string {
	var addrs []string
	for _, endpoint := range endpoints {
		addrs = append(addrs, fmt.Sprint(endpoint.Addr.Addr()))
	}
	return strings.Join(addrs, " ")
}
