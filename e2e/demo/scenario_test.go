package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
)

// setupWithoutNetwork returns a setup without networks: two locations in zone-a, one in zone-b.
func setupWithoutNetwork(t *testing.T) *setup {
	t.Helper()
	s := &setup{manifests: t.TempDir()}
	for i, suffix := range []string{"a1", "a2", "b1"} {
		pod := &fabric.Namespace{
			Name: "web-" + suffix,
			IPv4: netip.AddrFrom4([4]byte{10, 244, 0, byte(i + 1)}),
			IPv6: netip.MustParseAddr(fmt.Sprintf("fd00:244::%d", i+1)),
		}
		s.locations = append(s.locations, location{
			node: &fabric.Node{Namespace: &fabric.Namespace{Name: "node-" + suffix}},
			zone: "zone-" + suffix[:1],
			web:  &fabric.Pod{Namespace: pod},
		})
	}
	return s
}

func TestExpectedLocations(t *testing.T) {
	tests := map[string]struct {
		zone, emptied string
		want          []string
	}{
		"a zone with pods uses them":            {"zone-a", "", []string{"web-a1", "web-a2"}},
		"a zone with pods ignores another zone": {"zone-a", "zone-b", []string{"web-a1", "web-a2"}},
		"an emptied zone uses all others":       {"zone-b", "zone-b", []string{"web-a1", "web-a2"}},
		"a zone that never had pods uses all":   {"zone-c", "", []string{"web-a1", "web-a2", "web-b1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := webNames(setupWithoutNetwork(t).expected(test.zone, test.emptied))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("wrong pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProxyReadsManifests(t *testing.T) {
	for emptied, wantEndpoints := range map[string]int{"": 3, "zone-a": 1} {
		t.Run("emptied "+emptied, func(t *testing.T) {
			s := setupWithoutNetwork(t)
			_, errBefore := s.writeEndpoints(s.locations)
			_, err := s.writeEndpoints(s.without(emptied))
			_, errToo := s.writeNodes("zone-b")
			must(t, errors.Join(errBefore, err, errToo, s.writeService(measured), s.writeDemand(loadTopology{clients: s.locations, busy: "zone-b"})))
			var folder manifests.Folder
			update, err := folder.Load(s.manifests)
			must(t, err)
			if len(update.NewProblems) > 0 {
				t.Errorf("the proxy rejects some objects: %v", update.NewProblems)
			}
			if nodes := len(update.Change.Nodes); nodes != 3 {
				t.Errorf("the proxy has %d nodes, want 3", nodes)
			}
			if got := slices.Collect(maps.Keys(update.Change.Demotions)); !slices.Equal(got, []model.DemotionKey{{Node: "node-b1"}}) {
				t.Errorf("the proxy's demotions are %v, want the evacuation of node-b1", got)
			}
			for _, service := range update.Change.Services {
				if got := service.Name.String(); got != serviceName || len(service.Topology.Keys) != 2 {
					t.Errorf("the proxy has %s with topology keys %v, want %s with two", got, service.Topology.Keys, serviceName)
				}
				if service.Topology.MaxLoad != 100*bound || !service.Topology.Measured {
					t.Errorf("the proxy has a bound of %d %% (measured: %t), want %g %% with measured demand",
						service.Topology.MaxLoad, service.Topology.Measured, 100*bound)
				}
			}
			if services := len(update.Change.Services); services != 1 {
				t.Errorf("the proxy has %d Services, want 1", services)
			}
			got := map[model.Family]int{}
			for _, slice := range update.Change.Slices {
				got[slice.Family] += len(slice.Endpoints)
			}
			if want := map[model.Family]int{model.IPv4: wantEndpoints, model.IPv6: wantEndpoints}; !maps.Equal(got, want) {
				t.Errorf("the proxy has endpoints %v, want %v", got, want)
			}
		})
	}
}

func TestDisagreementInBothFamilies(t *testing.T) {
	ipv4, ipv6 := explanation{Family: "IPv4"}, explanation{Family: "IPv6"}
	ipv4.Cluster.Endpoints = []string{"10.244.0.2:8080", "10.244.0.1:8080"}
	ipv6.Cluster.Endpoints = []string{"[fd00:244::1]:8080", "[fd00:244::2]:8080"}
	other := ipv6
	other.Cluster.Endpoints = []string{"[fd00:244::3]:8080"}
	tests := map[string]struct {
		explanations []explanation
		want         []string
	}{
		"the expected endpoints in any order agree": {[]explanation{ipv4, ipv6}, nil},
		"a missing family disagrees":                {[]explanation{ipv4}, []string{"n: explain reports nothing about IPv6"}},
		"a repeated family disagrees": {
			[]explanation{ipv4, ipv6, ipv6},
			[]string{`n: explain reports the family "IPv6" twice, or it is unknown`},
		},
		"other endpoints disagree": {[]explanation{ipv4, other}, []string{
			"n: explain reports that IPv6 connections go to [[fd00:244::3]:8080], want [[fd00:244::1]:8080 [fd00:244::2]:8080]",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wanted := setupWithoutNetwork(t).expected("zone-a", "")
			if diff := cmp.Diff(test.want, disagreement("n", test.explanations, wanted)); diff != "" {
				t.Errorf("the disagreements differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasonDisagreement(t *testing.T) {
	evacuated := explanation{Family: "IPv4", Excluded: []excluded{
		{"10.244.0.2:8080", "NodeEvacuated"}, {"10.244.0.1:8080", "NodeEvacuated"}, {"10.244.0.3:8080", "OtherTopologyValue"},
	}}
	for zone, want := range map[string][]string{
		"zone-a": nil,
		"zone-b": {"n: explain reports IPv4 endpoints [10.244.0.1:8080 10.244.0.2:8080] as evacuated, want [10.244.0.3:8080]"},
		"":       {"n: explain reports IPv4 endpoints [10.244.0.1:8080 10.244.0.2:8080] as evacuated, want []"},
	} {
		t.Run("evacuated "+zone, func(t *testing.T) {
			got := reasonDisagreement("n", []explanation{evacuated}, inZone(zone, setupWithoutNetwork(t).locations))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the disagreements differ (-want +got):\n%s", diff)
			}
		})
	}
}
