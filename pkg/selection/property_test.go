package selection

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

const numScenarios = 5000

func TestPropertiesHoldInRandomScenarios(t *testing.T) {
	randomScenarios(numScenarios, func(s *scenario) {
		if !t.Failed() {
			checkProperties(t, s)
		}
	})
}

func TestRandomScenariosReachEveryCode(t *testing.T) {
	seen := map[Code]bool{}
	randomScenarios(numScenarios, func(s *scenario) {
		endpoints := s.endpoints()
		selection := s.choose(endpoints)
		seen[selection.Cluster.Reason.Code] = true
		if selection.Local != nil {
			seen[selection.Local.Reason.Code] = true
		}
		for _, exclusion := range (Decision{Viewpoint: s.viewpoint, Endpoints: endpoints, Selection: selection}).Exclusions() {
			seen[exclusion.Reason.Code] = true
		}
	})
	others := append(boundedCodes, OnlyEvacuated, NodeEvacuated, OnlyUnreachable, NodeUnreachable)
	for _, code := range Codes() {
		if isOther := slices.Contains(others, code); seen[code] == isOther {
			t.Errorf("%s occurs in random scenarios: %t, want the opposite", code, isOther)
		}
	}
}

// checkProperties checks all invariants that hold in any scenario.
func checkProperties(t *testing.T, s *scenario) {
	t.Helper()
	endpoints := s.endpoints()
	selection := s.choose(endpoints)
	checkChoice(t, endpoints, &selection.Cluster)
	if selection.Local != nil {
		checkChoice(t, endpoints, selection.Local)
	}
	checkExclusions(t, s, endpoints, selection)
	checkOrder(t, s, endpoints, selection)
	checkOutcomes(t, s, selection)
	checkFlows(t, s, endpoints, selection)
	checkTierOrder(t, Decision{Viewpoint: s.viewpoint, Service: &s.service, Endpoints: endpoints, Selection: selection})
	if len(s.service.Topology.Keys) > 0 {
		checkTiers(t, s, endpoints, selection)
	} else {
		checkAgainstKubeProxy(t, s, endpoints, selection)
	}
	if t.Failed() {
		t.Logf("scenario %+v\nendpoints %+v", s, endpoints)
	}
}

// checkChoice: chosen endpoints are given ones, in their order, all usable, and never a mix of ready and terminating
// ones.
func checkChoice(t *testing.T, endpoints []model.PortEndpoint, choice *Choice) {
	t.Helper()
	rest := endpoints
	for _, chosen := range choice.Endpoints {
		index := slices.IndexFunc(rest, func(endpoint model.PortEndpoint) bool { return cmp.Equal(endpoint, chosen, equateAddrs) })
		if index < 0 {
			t.Errorf("%v is not in the input, or in another order", chosen)
			return
		}
		rest = rest[index+1:]
		if !chosen.Ready && (!chosen.Serving || !chosen.Terminating) {
			t.Errorf("%v is chosen, but not usable", chosen)
		}
		if chosen.Ready != choice.Endpoints[0].Ready {
			t.Errorf("both ready and terminating endpoints are chosen: %v", choice.Endpoints)
		}
	}
	if (choice.Tier == "") != (len(choice.Endpoints) == 0) {
		t.Errorf("tier is %q with %d endpoints", choice.Tier, len(choice.Endpoints))
	}
	checkReason(t, choice.Reason)
}

func checkReason(t *testing.T, reason Reason) {
	t.Helper()
	if !slices.Contains(Codes(), reason.Code) || reason.Sentence() == "" {
		t.Errorf("reason %+v has no sentence", reason)
	}
}

// checkExclusions: every endpoint is either in a choice or excluded with a reason, never both.
func checkExclusions(t *testing.T, s *scenario, endpoints []model.PortEndpoint, selection Selection) {
	t.Helper()
	found := map[netip.AddrPort]string{}
	for _, exclusion := range (Decision{Viewpoint: s.viewpoint, Endpoints: endpoints, Selection: selection}).Exclusions() {
		found[exclusion.Endpoint] += "excluded"
		checkReason(t, exclusion.Reason)
		checkExclusionReason(t, endpoints, selection, exclusion)
	}
	chosen := map[netip.AddrPort]bool{}
	for _, endpoint := range selection.Cluster.Endpoints {
		chosen[endpoint.Addr] = true
	}
	if selection.Local != nil {
		for _, endpoint := range selection.Local.Endpoints {
			chosen[endpoint.Addr] = true
		}
	}
	for addr := range chosen {
		found[addr] += "chosen"
	}
	for _, endpoint := range endpoints {
		if state := found[endpoint.Addr]; state != "excluded" && state != "chosen" {
			t.Errorf("endpoint %v is %q, want either chosen or excluded", endpoint, state)
		}
	}
	if len(found) != len(endpoints) {
		t.Errorf("%d endpoints are chosen or excluded, of %d", len(found), len(endpoints))
	}
}

// checkOrder: a decision depends neither on the order of slices nor on that of endpoints.
func checkOrder(t *testing.T, s *scenario, endpoints []model.PortEndpoint, selection Selection) {
	t.Helper()
	slices.Reverse(s.slices)
	for _, slice := range s.slices {
		slices.Reverse(slice.Endpoints)
	}
	again := s.choose(s.endpoints())
	if diff := cmp.Diff(selection, again, equateAddrs, cmp.AllowUnexported(Selection{}, Choice{})); diff != "" {
		t.Errorf("the selection depends on the order of slices (-first +second):\n%s", diff)
	}
	backwards := slices.Clone(endpoints)
	slices.Reverse(backwards)
	reversed := s.choose(backwards)
	for _, choice := range []*Choice{&reversed.Cluster, reversed.Local} {
		if choice != nil {
			choice.Endpoints = slices.Clone(choice.Endpoints)
			slices.Reverse(choice.Endpoints)
		}
	}
	got := fmt.Sprint(selectionTextOf(reversed), reversed.Cluster.Reason.Code)
	want := fmt.Sprint(selectionTextOf(selection), selection.Cluster.Reason.Code)
	if got != want {
		t.Errorf("endpoints in reverse order: selection %s, want %s", got, want)
	}
}

// checkTiers: the first key that matches a ready endpoint wins and selects all that it matches, else the first that
// matches a terminating one. With * last there is always an endpoint if one is usable.
func checkTiers(t *testing.T, s *scenario, endpoints []model.PortEndpoint, selection Selection) {
	t.Helper()
	keys := s.service.Topology.Keys
	if selection.Cluster.Reason.Code == ClusterChoiceUnused {
		return
	}
	want, tier := "", ""
	for _, ready := range []bool{true, false} {
		for _, key := range keys {
			var matching []model.PortEndpoint
			for _, endpoint := range endpoints {
				if endpoint.Ready == ready && (ready || endpoint.Serving && endpoint.Terminating) && sameValue(s, key, endpoint) {
					matching = append(matching, endpoint)
				}
			}
			if tier == "" && len(matching) > 0 {
				want, tier = numbers(matching), string(key)
			}
		}
	}
	if got := numbers(selection.Cluster.Endpoints); got != want || selection.Cluster.Tier != tier {
		t.Errorf("chosen endpoints %q by key %q, want %q by %q", got, selection.Cluster.Tier, want, tier)
	}
	if keys[len(keys)-1] == policy.AnyNode && (len(selection.Cluster.Endpoints) > 0) != selection.HasUsableEndpoint {
		t.Errorf("with * last, %d endpoints are chosen; a usable one exists: %t", len(selection.Cluster.Endpoints), selection.HasUsableEndpoint)
	}
}

// sameValue is the definition of a match in its simplest form.
func sameValue(s *scenario, key policy.Key, endpoint model.PortEndpoint) bool {
	labels, _ := s.viewpoint.Labels(endpoint.Node)
	endpointValue, known := labels[string(key)]
	nodeValue, hasLabel := s.viewpoint.Node.Labels[string(key)]
	switch {
	case key == policy.AnyNode:
		return true
	case key == policy.Hostname:
		return endpoint.Node == s.viewpoint.Node.Name
	case key == policy.Zone && endpoint.Zone != "":
		return hasLabel && endpoint.Zone == nodeValue
	}
	return hasLabel && known && endpointValue == nodeValue
}

var equateAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, Reason{})
