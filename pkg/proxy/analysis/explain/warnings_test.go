package explain_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

func TestWarnings(t *testing.T) {
	tests := map[string]struct {
		change func(*model.Service)
		want   []string
	}{
		"no warnings": {func(*model.Service) {}, nil},
		"an ignored annotation": {
			func(service *model.Service) {
				service.Findings = []model.Finding{{
					Code: "TopologyKeysIgnored", Field: policy.TopologyKeysAnnotation, Reason: "the key * is not the last one",
				}}
			},
			[]string{"The annotation vicinity.dev/topology-keys is ignored: the key * is not the last one"},
		},
		"ignored parts of the object": {
			func(service *model.Service) { service.Findings = skipped("one thing.", "another.") },
			[]string{"Ignored in the Service: one thing.", "Ignored in the Service: another."},
		},
		"a finding with another code": {
			func(service *model.Service) {
				service.Findings = []model.Finding{{Code: "Other", Field: "spec.a", Reason: "It is odd."}}
			},
			[]string{"spec.a: It is odd."},
		},
		"source ranges of this family": {func(service *model.Service) { service.SourceRanges = prefixes("203.0.113.0/24") }, nil},
		"source ranges of the other family only": {
			func(service *model.Service) { service.SourceRanges = prefixes("2001:db8::/32") },
			[]string{"The LoadBalancerIPs are open to all clients over IPv4, because loadBalancerSourceRanges has no IPv4 range."},
		},
		"source ranges of the other family, and no load balancer here": {func(service *model.Service) {
			service.SourceRanges, service.LoadBalancerIPs = prefixes("2001:db8::/32"), nil
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := exposedService()
			test.change(service)
			got := onlyPort(t, clusterOf(webSlice(endpoint("10.244.1.5", "node-a", true)), service))
			if diff := cmp.Diff(test.want, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSkippedEndpointsOfTheFamilyAreAWarning(t *testing.T) {
	slice, other := webSlice(endpoint("10.244.1.5", "node-a", true)), webSlice()
	slice.Findings = skipped("endpoints[1]: why.")
	other.Name.Name, other.Family, other.Findings = "web-2", model.IPv6, skipped("endpoints[0]: why.")
	cluster := clusterOf(slice, web())
	cluster.Apply(model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{other.Name: other}})
	want := []string{"Ignored in the EndpointSlice default/web-1: endpoints[1]: why."}
	if diff := cmp.Diff(want, onlyPort(t, cluster).Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func skipped(reasons ...string) []model.Finding {
	var list []model.Finding
	for _, reason := range reasons {
		list = append(list, model.Finding{Code: model.PartiallyIgnored, Reason: reason})
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestALostFrontendIsShownWithItsOwner(t *testing.T) {
	clusterIP, externalIP := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("192.0.2.10")
	tests := map[string]struct {
		// other claims the frontends of default/web, and is an hour older.
		other func(other *model.Service)
		want  []explain.LostFrontend

		outcome, message string
		traffic          int
	}{
		"an older Service owns the external IP": {
			other: func(other *model.Service) {
				other.ClusterIPs, other.ExternalIPs = []netip.Addr{netip.MustParseAddr("10.96.0.11")}, []netip.Addr{externalIP}
			},
			want: []explain.LostFrontend{{
				Frontend: explain.Frontend{Address: "192.0.2.10:80", Kind: "ExternalIP"}, Owner: "default/other", Reason: "OwnerIsOlder",
				Message: "192.0.2.10:80/TCP belongs to the older Service default/other, until that Service releases it.",
			}},
			outcome: "balance", message: "New connections to the ClusterIP go to one endpoint.", traffic: 1,
		},
		"a younger Service has the external IP as its ClusterIP": {
			other: func(other *model.Service) {
				other.ClusterIPs, other.Created = []netip.Addr{externalIP}, other.Created.Add(24*time.Hour)
			},
			want: []explain.LostFrontend{{
				Frontend: explain.Frontend{Address: "192.0.2.10:80", Kind: "ExternalIP"}, Owner: "default/other", Reason: "OwnersClusterIP",
				Message: "192.0.2.10:80/TCP belongs to the Service default/other, whose ClusterIP it is, until that Service releases it.",
			}},
			outcome: "balance", message: "New connections to the ClusterIP go to one endpoint.", traffic: 1,
		},
		"another Service owns the ClusterIP and is of the same age": {
			other: func(other *model.Service) { other.Created = other.Created.Add(time.Hour) },
			want: []explain.LostFrontend{{
				Frontend: explain.Frontend{Address: "10.96.0.10:80", Kind: "ClusterIP"}, Owner: "default/other", Reason: "OwnersNameIsFirst",
				Message: "10.96.0.10:80/TCP belongs to the Service default/other, which has the same age and comes first by name, " +
					"until that Service releases it.",
			}},
			outcome: "lost", message: "The ClusterIP does not lead here, because another Service owns it on this port.", traffic: 1,
		},
		"an older Service owns everything": {
			other: func(other *model.Service) { other.ExternalIPs = []netip.Addr{externalIP} },
			want: []explain.LostFrontend{
				{Frontend: explain.Frontend{Address: "10.96.0.10:80", Kind: "ClusterIP"}, Owner: "default/other", Reason: "OwnerIsOlder"},
				{Frontend: explain.Frontend{Address: "192.0.2.10:80", Kind: "ExternalIP"}, Owner: "default/other", Reason: "OwnerIsOlder"},
			},
			outcome: "lost", message: "This port cannot be reached, because other Services own all its frontends.", traffic: 0,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service, other := web(), web()
			service.ExternalIPs = []netip.Addr{externalIP}
			service.Created = other.Created.Add(time.Hour)
			other.Name.Name, other.ClusterIPs = "other", []netip.Addr{clusterIP}
			test.other(other)
			got := onlyPort(t, clusterOf(webSlice(endpoint("10.244.1.5", "node-a", true)), service, other))

			ignored := cmpopts.IgnoreFields(explain.LostFrontend{}, "Message")
			if len(test.want) == 1 {
				ignored = cmp.Options{}
			}
			if diff := cmp.Diff(test.want, got.LostFrontends, ignored); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{test.outcome, test.message}, []string{got.Outcome, got.Message}); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if len(got.Traffic) != test.traffic || len(got.Warnings) != len(test.want) {
				t.Errorf("traffic %+v, warnings %q; want %d and %d of them", got.Traffic, got.Warnings, test.traffic, len(test.want))
			}
		})
	}
}
