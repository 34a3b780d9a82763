package explain_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

func TestAllowedSources(t *testing.T) {
	tests := map[string]struct {
		ranges        []netip.Prefix
		loadBalancers []string
		want          []string
	}{
		"no range allows all clients": {nil, []string{"198.51.100.7"}, nil},
		"a range":                     {prefixes("203.0.113.0/24"), []string{"198.51.100.7"}, []string{"203.0.113.0/24"}},
		"ranges of the other family are omitted": {
			prefixes("203.0.113.0/24", "2001:db8::/32"), []string{"198.51.100.7"}, []string{"203.0.113.0/24"},
		},
		"a range of all addresses excludes no client": {prefixes("0.0.0.0/0"), []string{"198.51.100.7"}, nil},
		"no LoadBalancerIP, so no allowed sources":    {prefixes("203.0.113.0/24"), nil, nil},
		"this node is in the range, so the LoadBalancerIP is allowed, too": {
			prefixes("172.18.0.0/16"), []string{"198.51.100.7"}, []string{"172.18.0.0/16", "198.51.100.7/32"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := web()
			service.SourceRanges = test.ranges
			for _, addr := range test.loadBalancers {
				service.LoadBalancerIPs = append(service.LoadBalancerIPs, netip.MustParseAddr(addr))
			}
			cluster := clusterOf(webSlice(), service)
			cluster.Apply(model.Change{Nodes: map[string]*model.Node{
				"node-a": {Name: "node-a", Addresses: []netip.Addr{netip.MustParseAddr("172.18.0.2")}},
			}})
			if diff := cmp.Diff(test.want, onlyPort(t, cluster).AllowedSources); diff != "" {
				t.Errorf("allowed sources (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHealthCheckCountsTheReadyEndpointsOfThisNode(t *testing.T) {
	local, remote := endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)
	unready := endpoint("10.244.1.5", "node-a", false)
	tests := map[string]struct {
		port      uint16
		endpoints []model.SliceEndpoint
		want      *explain.HealthCheck
	}{
		"no health check port": {0, []model.SliceEndpoint{local}, nil},
		"a ready endpoint is on this node": {32000, []model.SliceEndpoint{local, remote},
			&explain.HealthCheck{NodePort: 32000, LocalEndpoints: 1}},
		"no endpoint is on this node":            {32000, []model.SliceEndpoint{remote}, &explain.HealthCheck{NodePort: 32000}},
		"the endpoint on this node is not ready": {32000, []model.SliceEndpoint{unready}, &explain.HealthCheck{NodePort: 32000}},
		"no endpoints":                           {32000, nil, &explain.HealthCheck{NodePort: 32000}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := exposedService()
			service.ExternalTrafficLocal, service.HealthCheckNodePort = true, test.port
			if diff := cmp.Diff(test.want, onlyPort(t, clusterOf(webSlice(test.endpoints...), service)).HealthCheck); diff != "" {
				t.Errorf("health check (-want +got):\n%s", diff)
			}
		})
	}
}
