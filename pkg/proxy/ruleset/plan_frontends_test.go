package ruleset_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// everyKindWith is what the Service everyKind owns in IPv4 after a change.
func everyKindWith(pods []pod, changes ...func(*model.Service)) []ruleset.Service {
	service := everyKind("web", 1)
	service.ClusterIPs = service.ClusterIPs[:1]
	service.Ports = slices.Clone(service.Ports)
	for _, change := range changes {
		change(&service)
	}
	return services(programmed(service, pods...))
}

func withoutNodePort(s *model.Service)   { s.Ports[0].NodePort = 0 }
func withoutExternalIP(s *model.Service) { s.ExternalIPs = nil }
func withoutSources(s *model.Service)    { s.SourceRanges = nil }
func fromOne(source string) func(*model.Service) {
	return func(s *model.Service) { s.SourceRanges = prefixes(source) }
}
func externalLocal(s *model.Service) { s.ExternalTrafficLocal = true }
func affinity(s *model.Service)      { s.AffinityTimeout = time.Hour }

// The frontends of everyKind in IPv4, and its endpoints.
const (
	clusterIP, balancerIP, externalIP, nodePort = "10.96.1.1 80", "203.0.113.1 80", "198.51.100.1 80", "30001"
	one, two                                    = " => 10.244.9.1 8080", " => 10.244.9.2 8080"
)

func TestPlansOfFrontendsThatComeAndGo(t *testing.T) {
	pods := slices.Concat(on1(1), on2(2))
	checkPlans(t, map[string]planCase{
		"a node port is added: its own elements": {
			have: everyKindWith(pods, withoutNodePort), want: everyKindWith(pods), plan: []string{
				"+ nodeports: " + nodePort + " => class/2",
				"+ nodeport-endpoints: " + nodePort + " slot/0" + one + ", " + nodePort + " slot/1" + two,
				"+ nodeport-cluster: " + nodePort,
			},
		},
		"a node port is removed: its own elements, and its endpoints with the sweep": {
			have: everyKindWith(pods), want: everyKindWith(pods, withoutNodePort),
			plan:  []string{"- nodeports: " + nodePort + " => class/2", "- nodeport-cluster: " + nodePort},
			sweep: []string{"- nodeport-endpoints: " + nodePort + " slot/0" + one + ", " + nodePort + " slot/1" + two},
		},
		"an external IP is added: its own elements": {
			have: everyKindWith(pods, withoutExternalIP), want: everyKindWith(pods), plan: []string{
				"+ services: " + externalIP + " => class/2",
				"+ endpoints: " + externalIP + " slot/0" + one + ", " + externalIP + " slot/1" + two,
				"+ external-cluster: " + externalIP,
			},
		},
		"an external IP is removed: its own elements, and its endpoints with the sweep": {
			have: everyKindWith(pods), want: everyKindWith(pods, withoutExternalIP),
			plan:  []string{"- services: " + externalIP + " => class/2", "- external-cluster: " + externalIP},
			sweep: []string{"- endpoints: " + externalIP + " slot/0" + one + ", " + externalIP + " slot/1" + two},
		},
		"source ranges are added: the list first, and then what leads to it": {
			have: everyKindWith(pods, withoutSources), want: everyKindWith(pods), plan: []string{
				"+ sources: " + everySource, "0 chain source-ranges", "+ rules of source-ranges", "+ restricted: " + balancerIP + " => sources",
			},
		},
		"a source range grows: the frontend is led to another list, and the old one is swept": {
			have: everyKindWith(pods),
			want: everyKindWith(pods, func(s *model.Service) { s.SourceRanges = prefixes("192.0.2.0/24") }),
			plan: []string{
				"+ sources: sources 192.0.2.0 192.0.2.255", "0 chain source-ranges", "+ rules of source-ranges",
				"- restricted: " + balancerIP + " => sources", "+ restricted: " + balancerIP + " => sources",
				"0 chain source-ranges", "+ rules of source-ranges",
			},
			sweep: []string{"- sources: " + everySource},
		},
		"another range of the same length: the list and what leads to it": {
			have: everyKindWith(pods, fromOne("192.0.2.7/32")), want: everyKindWith(pods, fromOne("192.0.2.8/32")), plan: []string{
				"+ sources: sources 192.0.2.8 192.0.2.8",
				"- restricted: " + balancerIP + " => sources", "+ restricted: " + balancerIP + " => sources",
			},
			sweep: []string{"- sources: sources 192.0.2.7 192.0.2.7"},
		},
		"source ranges are removed: what leads to the list, and the list with the sweep": {
			have: everyKindWith(pods), want: everyKindWith(pods, withoutSources), plan: []string{
				"- restricted: " + balancerIP + " => sources", "0 chain source-ranges", "+ rules of source-ranges",
			},
			sweep: []string{"- sources: " + everySource},
		},
		"the Service leaves: what leads to a chain is swept before the chain": {
			have: everyKindWith(pods, externalLocal), want: services(nothing("web")), plan: []string{
				"- services: " + clusterIP + " => class/2, " + externalIP + " => class/2-local/1, " + balancerIP + " => class/2-local/1",
				"- nodeports: " + nodePort + " => class/2-local/1",
				"- external-local: " + externalIP + ", " + balancerIP, "- nodeport-local: " + nodePort,
				"- restricted: " + balancerIP + " => sources",
				"- cluster-ips: 10.96.1.1", "- hairpin: 10.244.9.1 10.244.9.1 8080",
				"0 chain source-ranges", "+ rules of source-ranges",
			}, sweep: []string{
				"- dispatch: class/2-local/1 => jump lb-2-local-1",
				"- endpoints: " + clusterIP + " slot/0" + one + ", " + clusterIP + " slot/1" + two + ", " +
					externalIP + " local-slot/0" + one + ", " + externalIP + " slot/0" + one + ", " + externalIP + " slot/1" + two + ", " +
					balancerIP + " local-slot/0" + one + ", " + balancerIP + " slot/0" + one + ", " + balancerIP + " slot/1" + two,
				"- nodeport-endpoints: " + nodePort + " local-slot/0" + one + ", " + nodePort + " slot/0" + one + ", " + nodePort + " slot/1" + two,
				"- sources: " + everySource,
				"0 chain lb-2-local-1", "- chain lb-2-local-1",
			},
		},
	})
}

// everySource is what 192.0.2.0/25 and 192.0.2.200/32 are in the tables, sorted as text.
var everySource = strings.Join(everySources[model.IPv4], ", ")

// TestWhatAChangeOfEndpointsWrites, in elements, for a Service with a ClusterIP, a load balancer's address and a node
// port: as much as it has frontends, whatever else there is. What the sweep deletes behind the two batches is not
// counted.
func TestWhatAChangeOfEndpointsWrites(t *testing.T) {
	threeFrontends := func(s *model.Service) { s.ExternalIPs = nil } // ClusterIP, load balancer, node port
	for name, test := range map[string]struct {
		have, want     []pod
		changes        []func(*model.Service)
		deleted, added int
	}{
		"another pod elsewhere: a slot for each frontend":        {on2(1, 2), on2(3, 2), nil, 3, 3},
		"another pod here: a slot for each, and hairpin":         {on1(1, 2), on1(3, 2), nil, 4, 4},
		"a pod moves here: hairpin alone":                        {on2(1), on1(1), nil, 0, 1},
		"one pod more: class and slot for each":                  {on2(1, 2), on2(1, 2, 3), nil, 3, 6},
		"one pod less: class for each":                           {on2(1, 2, 3), on2(1, 2), nil, 3, 3},
		"the first pod: class and slot for each":                 {nil, on2(1), nil, 3, 6},
		"the last pod leaves: class for each":                    {on2(1), nil, nil, 3, 3},
		"Local, another pod elsewhere: a slot for each":          {on2(1, 2), on2(3, 2), []func(*model.Service){externalLocal}, 3, 3},
		"Local, another pod here: two external local slots more": {on1(1, 2), on1(3, 2), []func(*model.Service){externalLocal}, 6, 6},
		"with affinity: a slot for each, and one number":         {on2(1, 2), on2(3, 2), []func(*model.Service){affinity}, 4, 4},
		"with affinity, one pod more: and its number":            {on2(1, 2), on2(1, 2, 3), []func(*model.Service){affinity}, 3, 8},
		"with affinity and Local, another pod here: in two views": {
			on1(1, 2), on1(3, 2), []func(*model.Service){affinity, externalLocal}, 8, 8,
		},
		"Local, one pod more here: class for each, dispatch, five slots and hairpin": {
			on1(1), on1(1, 2), []func(*model.Service){externalLocal}, 3, 10,
		},
		"the same pods in another order: nothing": {on2(1, 2), on2(2, 1), nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			changes := append([]func(*model.Service){threeFrontends}, test.changes...)
			plan := start(t, everyKindWith(test.have, changes...)...).change(t, everyKindWith(test.want, changes...)...)
			deleted := plan.Prepare.Count(model.IPv4, ruleset.Delete) + plan.Batch.Count(model.IPv4, ruleset.Delete)
			added := plan.Prepare.Count(model.IPv4, ruleset.Add) + plan.Batch.Count(model.IPv4, ruleset.Add)
			if deleted != test.deleted || added != test.added {
				t.Errorf("%d elements deleted and %d added, want %d and %d: %v", deleted, added, test.deleted, test.added, planned(plan))
			}
		})
	}
}

// TestAFrontendMovesToAnotherService in one plan: its elements are replaced, and none of its endpoints is lost by the
// sweep.
func TestAFrontendMovesToAnotherService(t *testing.T) {
	loser, winner := everyKindWith(on2(1)), everyKind("winner", 2)
	winner.ClusterIPs = winner.ClusterIPs[:1]
	r := start(t, append(loser, programmed(winner, on2(2)...))...)
	winner.ExternalIPs = append(winner.ExternalIPs, netip.MustParseAddr("198.51.100.1"))
	plan := r.change(t, append(everyKindWith(on2(1), withoutExternalIP), programmed(winner, on2(2)...))...)
	want := []string{
		"- services: " + externalIP + " => class/1", "- endpoints: " + externalIP + " slot/0" + one, "- external-cluster: " + externalIP,
		"+ services: " + externalIP + " => class/1", "+ endpoints: " + externalIP + " slot/0" + two, "+ external-cluster: " + externalIP,
	}
	if diff := cmp.Diff(want, planned(plan)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if swept := r.sweep(t); swept != nil {
		t.Errorf("the sweep removes %v", swept)
	}
}
