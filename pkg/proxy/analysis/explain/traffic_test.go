package explain_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

func TestOutcomeOfTheClusterIP(t *testing.T) {
	localService := func() *model.Service {
		service := web()
		service.InternalTrafficLocal = true
		return service
	}
	localEndpoint, remoteEndpoint := endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)
	tests := map[string]struct {
		cluster *model.Cluster
		outcome string
		message string
	}{
		"two endpoints share the connections": {
			clusterOf(webSlice(localEndpoint, remoteEndpoint), web()),
			"balance", "New connections to the ClusterIP are spread at random over 2 endpoints.",
		},
		"a Local policy uses only the endpoint on this node": {
			clusterOf(webSlice(localEndpoint, remoteEndpoint), localService()),
			"balance", "New connections to the ClusterIP go to one endpoint on this node.",
		},
		"a Local policy with endpoints only elsewhere drops": {
			clusterOf(webSlice(remoteEndpoint), localService()), "drop",
			"New connections to the ClusterIP are dropped, because internalTrafficPolicy is Local and every usable endpoint is on another node.",
		},
		"no usable endpoint at all refuses": {
			clusterOf(webSlice(endpoint("10.244.1.5", "node-a", false)), web()),
			"refuse", "New connections to the ClusterIP are refused at once, because no endpoint may be used.",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := onlyPort(t, test.cluster)
			if diff := cmp.Diff([]string{test.outcome, test.message}, []string{got.Outcome, got.Message}); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// exposedService returns web with a load-balancer IP, an external IP and a node port.
func exposedService() *model.Service {
	service := web()
	service.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7")}
	service.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10")}
	service.Ports[0].NodePort = 30080
	return service
}

func TestEveryFrontendIsNamedWithItsKind(t *testing.T) {
	service := exposedService()
	service.ClusterIPs = append(service.ClusterIPs, netip.MustParseAddr("fd00:10:96::10"))
	ports := explain.Clients{}.Ports(clusterOf(webSlice(), service), explain.Query{})
	got := map[string][]explain.Frontend{}
	for _, port := range ports {
		got[port.Family] = port.Frontends
	}
	want := map[string][]explain.Frontend{
		"IPv4": {
			{Address: "10.96.0.10:80", Kind: "ClusterIP"}, {Address: "198.51.100.7:80", Kind: "LoadBalancerIP"},
			{Address: "192.0.2.10:80", Kind: "ExternalIP"}, {Address: "*:30080", Kind: "NodePort"},
		},
		"IPv6": {{Address: "[fd00:10:96::10]:80", Kind: "ClusterIP"}, {Address: "*:30080", Kind: "NodePort"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frontends (-want +got):\n%s", diff)
	}
}

// trafficRow is a Traffic without its message and frontends.
type trafficRow struct{ to, from, outcome, choice, source string }

// TestTrafficIsSplitWherePoliciesDiffer has the rows of kube-proxy's table of which endpoints serve which traffic, with
// the source addresses of its packet matrix.
func TestTrafficIsSplitWherePoliciesDiffer(t *testing.T) {
	local, remote := endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)
	setInternalLocal := func(service *model.Service) { service.InternalTrafficLocal = true }
	setExternalLocal := func(service *model.Service) { service.ExternalTrafficLocal = true }
	setZoneKey := func(service *model.Service) { service.Topology.Keys = []policy.Key{"example.com/zone"} }
	both := []model.SliceEndpoint{local, remote}
	tests := map[string]struct {
		policies  []func(*model.Service)
		endpoints []model.SliceEndpoint
		want      []trafficRow
	}{
		"no policy is Local": {nil, both, []trafficRow{
			{"ClusterIP", "everybody", "balance", "cluster", ""}, {"external", "everybody", "balance", "cluster", "masqueraded"},
		}},
		"internalTrafficPolicy Local governs only the ClusterIP": {[]func(*model.Service){setInternalLocal}, both, []trafficRow{
			{"ClusterIP", "everybody", "balance", "local", ""}, {"external", "everybody", "balance", "cluster", "masqueraded"},
		}},
		"externalTrafficPolicy Local keeps outside clients here, with their address": {[]func(*model.Service){setExternalLocal}, both,
			[]trafficRow{
				{"ClusterIP", "everybody", "balance", "cluster", ""},
				{"external", "outside", "balance", "local", "kept"}, {"external", "inside", "balance", "cluster", "keptForPods"},
			}},
		"without an endpoint here outside clients are dropped and pods are served": {
			[]func(*model.Service){setExternalLocal}, []model.SliceEndpoint{remote}, []trafficRow{
				{"ClusterIP", "everybody", "balance", "cluster", ""},
				{"external", "outside", "drop", "local", ""}, {"external", "inside", "balance", "cluster", "keptForPods"},
			}},
		"both policies are Local": {[]func(*model.Service){setInternalLocal, setExternalLocal}, []model.SliceEndpoint{remote}, []trafficRow{
			{"ClusterIP", "everybody", "drop", "local", ""},
			{"external", "outside", "drop", "local", ""}, {"external", "inside", "balance", "cluster", "keptForPods"},
		}},
		"without any endpoint all clients are treated alike": {[]func(*model.Service){setExternalLocal}, nil, []trafficRow{
			{"ClusterIP", "everybody", "refuse", "cluster", ""}, {"external", "everybody", "refuse", "cluster", ""},
		}},
		"topology keys that match nothing refuse both": {[]func(*model.Service){setZoneKey}, []model.SliceEndpoint{remote}, []trafficRow{
			{"ClusterIP", "everybody", "refuse", "cluster", ""}, {"external", "everybody", "refuse", "cluster", ""},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := exposedService()
			for _, set := range test.policies {
				set(service)
			}
			var got []trafficRow
			for _, traffic := range onlyPort(t, clusterOf(webSlice(test.endpoints...), service)).Traffic {
				got = append(got, trafficRow{traffic.To, traffic.From, traffic.Outcome, traffic.Choice, traffic.Source})
				want := []string{"198.51.100.7:80", "192.0.2.10:80", "*:30080"}
				if traffic.To == "ClusterIP" {
					want = []string{"10.96.0.10:80"}
				}
				if diff := cmp.Diff(want, traffic.Frontends); diff != "" {
					t.Errorf("frontends of traffic to %s (-want +got):\n%s", traffic.To, diff)
				}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(trafficRow{})); diff != "" {
				t.Errorf("traffic (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrafficIsShownInSentences(t *testing.T) {
	local, remote := endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)
	tests := map[string]struct {
		local     bool
		endpoints []model.SliceEndpoint
		want      []string
	}{
		"externalTrafficPolicy Cluster": {false, []model.SliceEndpoint{local, remote}, []string{
			"New connections to the ClusterIP are spread at random over 2 endpoints.",
			"New connections to the external frontends are spread at random over 2 endpoints, which see an address of this node instead of " +
				"the client's.",
		}},
		"externalTrafficPolicy Local": {true, []model.SliceEndpoint{local, remote}, []string{
			"New connections to the ClusterIP are spread at random over 2 endpoints.",
			"New connections from outside go to one endpoint on this node, which sees the client's own address.",
			"New connections from pods and this node are spread at random over 2 endpoints, which see a pod's own address, or one of this node.",
		}},
		"externalTrafficPolicy Local, and no endpoint here": {true, []model.SliceEndpoint{remote}, []string{
			"New connections to the ClusterIP go to one endpoint.",
			"New connections from outside are dropped, because externalTrafficPolicy is Local and every usable endpoint is on another node.",
			"New connections from pods and this node go to one endpoint, which sees a pod's own address, or one of this node.",
		}},
		"no endpoint at all": {true, nil, []string{
			"New connections to the ClusterIP are refused at once, because no endpoint may be used.",
			"New connections to the external frontends are refused at once, because no endpoint may be used.",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := exposedService()
			service.ExternalTrafficLocal = test.local
			var got []string
			for _, traffic := range onlyPort(t, clusterOf(webSlice(test.endpoints...), service)).Traffic {
				got = append(got, traffic.Message)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}
