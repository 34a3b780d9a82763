package main

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// exampleTopology returns two clients in each of three zones, four web pods in zone-a, and one each in zone-b and zone-c.
func exampleTopology() loadTopology {
	var topology loadTopology
	for _, zone := range []string{"zone-a", "zone-b", "zone-c"} {
		topology.clients = append(topology.clients, location{zone: zone}, location{zone: zone})
	}
	for _, suffix := range []string{"a1", "a2", "a3", "a4", "b1", "c1"} {
		web := &fabric.Pod{Namespace: &fabric.Namespace{Name: "web-" + suffix}}
		topology.webs = append(topology.webs, location{zone: "zone-" + suffix[:1], web: web})
	}
	return topology
}

// exampleLoads returns the loads of exampleTopology without and with a bound, of 6000 connections.
func exampleLoads() (withoutBound, balanced load) {
	topology := exampleTopology()
	return load{loadTopology: topology, setting: unbounded, counts: []int{520, 500, 490, 490, 2000, 2000}, stayedCount: 6000},
		load{loadTopology: topology, setting: assumed, counts: []int{885, 910, 910, 890, 1210, 1195}, stayedCount: 4400}
}

func TestInZoneShare(t *testing.T) {
	tests := map[string]struct {
		zone   string
		most   float64
		near   float64
		wanted []string
	}{
		"without a bound, all":                       {"zone-b", math.Inf(1), 1, []string{"web-b1"}},
		"with a bound, as much as the bound permits": {"zone-b", 1.2, 0.6, []string{"web-a1", "web-a2", "web-a3", "web-a4", "web-b1"}},
		"with free capacity, all":                    {"zone-a", 1.2, 1, []string{"web-a1", "web-a2", "web-a3", "web-a4"}},
		"with a bound that is not reached, all":      {"zone-b", 2, 1, []string{"web-b1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			topology := exampleTopology()
			if near := topology.inZoneShare(test.zone, test.most); math.Abs(near-test.near) > 1e-9 {
				t.Errorf("share of connections that should stay is %g, want %g", near, test.near)
			}
			if diff := cmp.Diff(test.wanted, webNames(topology.expected(test.zone, test.most))); diff != "" {
				t.Errorf("wrong pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrintLoads(t *testing.T) {
	withoutBound, balanced := exampleLoads()
	want := strings.Join([]string{
		"                   by zone preference alone                  with max-load 120%",
		"  zone-a  web-a1     520  █████                                885  █████████",
		"          web-a2     500  █████                                910  █████████",
		"          web-a3     490  █████                                910  █████████",
		"          web-a4     490  █████                                890  █████████",
		"  zone-b  web-b1    2000  ████████████▒▒▒▒▒▒▒▒                1210  ████████████",
		"  zone-c  web-c1    2000  ████████████▒▒▒▒▒▒▒▒                1195  ████████████",
		"",
		"          busiest  ✗ 2.00 times the mean                     ✓ 1.21 times the mean (1.20, and chance)",
		"          in zone    100 % stayed in their zone                 73 % stayed in their zone",
		"",
		"                   █ is a tenth of the mean, 1000; ▒ is more than 1.2 times the mean",
		"", "",
	}, "\n")
	var plain, coloured strings.Builder
	printLoads(&page{w: &plain}, withoutBound, balanced)
	if diff := cmp.Diff(want, plain.String()); diff != "" {
		t.Errorf("the table differs (-want +got):\n%s", diff)
	}
	printLoads(&page{w: &coloured, coloured: true}, withoutBound, balanced)
	if diff := cmp.Diff(want, withoutColour(coloured.String())); diff != "" {
		t.Errorf("the coloured table differs except for its colour (-want +got):\n%s", diff)
	}
}

func TestLoadMistakes(t *testing.T) {
	withoutBound, balanced := exampleLoads()
	tests := map[string]struct {
		change func(withoutBound, balanced *load)
		want   []string
	}{
		"an overload that the bound prevents is no mistake": {func(_, _ *load) {}, nil},
		"no overload without the bound is a mistake": {
			func(withoutBound, _ *load) { withoutBound.counts = []int{1000, 1000, 1000, 1000, 1000, 1000} },
			[]string{"by zone preference alone the busiest web pod got 1.00 times the mean: it is not overloaded, so the bound has no effect"},
		},
		"an overload under the bound is a mistake": {
			func(_, balanced *load) { balanced.counts = []int{800, 900, 900, 800, 900, 1700} },
			[]string{"with max-load 120%: web-c1 got 1.70 times the mean; max-load is 120%, and chance explains at most 1.39"},
		},
		"too few connections in their zone are a mistake": {
			func(_, balanced *load) { balanced.stayedCount = 2400 },
			[]string{"with max-load 120%: 2400 of 6000 connections stayed in their zone, want 4400"},
		},
		"a single connection that leaves its zone needlessly is a mistake": {
			func(withoutBound, _ *load) { withoutBound.stayedCount-- },
			[]string{"by zone preference alone: 5999 of 6000 connections stayed in their zone, want 6000"},
		},
		"a failed connection is a mistake": {
			func(_, balanced *load) { balanced.failures = []error{errors.New("refused")} },
			[]string{"with max-load 120%: a connection failed: refused"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withoutBound, balanced := withoutBound, balanced
			test.change(&withoutBound, &balanced)
			if diff := cmp.Diff(test.want, loadMistakes(withoutBound, balanced)); diff != "" {
				t.Errorf("the mistakes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShareDisagreement(t *testing.T) {
	ipv4, ipv6 := explanation{Family: "IPv4"}, explanation{Family: "IPv6"}
	ipv4.Cluster.Endpoints = []string{"10.244.0.1:8080", "10.244.0.2:8080"}
	ipv6.Cluster.Endpoints = []string{"[fd00:244::1]:8080", "[fd00:244::2]:8080"}
	ipv4.Cluster.Shares = []share{{Key: zoneKey, Share: 0.45}, {Key: "*", Share: 0.55}}
	ipv6.Cluster.Shares = []share{{Key: zoneKey, Share: 0.6}, {Key: "*", Share: 0.4}}
	want := []string{"n: explain reports that 60.0 % of the IPv6 connections stay in the zone, want 45.0 %"}
	got := shareDisagreement("n", []explanation{ipv4, ipv6}, setupWithoutNetwork(t).expected("zone-a", ""), 0.45)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the disagreements differ (-want +got):\n%s", diff)
	}
}
