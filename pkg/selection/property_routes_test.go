package selection

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func checkAgainstKubeProxy(t *testing.T, s *scenario, endpoints []model.PortEndpoint, selection Selection) {
	t.Helper()
	choices := kubeProxyView(s, endpoints)
	if diff := cmp.Diff(choices, selectionTextOf(selection)); diff != "" {
		t.Errorf("selection differs from kube-proxy's (-kube-proxy +got):\n%s", diff)
	}
	want, got := kubeProxyRoutes(s, choices), routesOf(selection)
	if !s.hasExternalFrontend() {
		want.External, want.ShortCircuit = got.External, got.ShortCircuit
	}
	if got != want {
		t.Errorf("connections go to %+v, want %+v as with kube-proxy", got, want)
	}
}

// checkOutcomes: each kind of connection is served by the choice that its policy names. It is balanced if and only if
// that choice has an endpoint, and dropped only by a Local policy.
func checkOutcomes(t *testing.T, s *scenario, selection Selection) {
	t.Helper()
	external := s.hasExternalFrontend()
	checkServed(t, selection, selection.ClusterIP, s.service.InternalTrafficLocal, internalTrafficPolicy)
	checkServed(t, selection, selection.External, s.service.ExternalTrafficLocal && external, externalTrafficPolicy)
	checkServed(t, selection, selection.ShortCircuit, false, "")
	if external && selection.Cluster.Reason.Code == ClusterChoiceUnused {
		t.Error("the cluster choice is not computed, but pods need it for the external frontends")
	}
}

func checkServed(t *testing.T, selection Selection, serve func() (Choice, Outcome), local bool, policyField string) {
	t.Helper()
	choice, outcome := serve()
	served, want := &selection.Cluster, Refuse
	if local {
		served = selection.Local
	}
	switch {
	case len(served.Endpoints) > 0:
		want = Balance
	case local && selection.HasUsableEndpoint:
		want = Drop
	}
	if numbers(choice.Endpoints) != numbers(served.Endpoints) || choice.Reason.Code != served.Reason.Code || choice.Tier != served.Tier {
		t.Errorf("served by %+v, want %+v", choice, *served)
	}
	if outcome != want {
		t.Errorf("outcome is %d, want %d", outcome, want)
	}
	if local && choice.Reason.Key != "" && choice.Reason.Key != policyField {
		t.Errorf("the reason names %s instead of %s", choice.Reason.Key, policyField)
	}
}

// checkExclusionReason checks that an exclusion's reason is true for its endpoint.
func checkExclusionReason(t *testing.T, endpoints []model.PortEndpoint, selection Selection, exclusion Exclusion) {
	t.Helper()
	index := slices.IndexFunc(endpoints, func(endpoint model.PortEndpoint) bool { return endpoint.Addr == exclusion.Endpoint })
	endpoint := endpoints[index]
	terminating := !endpoint.Ready && endpoint.Serving && endpoint.Terminating
	chosen := slices.Clone(selection.Cluster.Endpoints)
	if selection.Local != nil {
		chosen = append(chosen, selection.Local.Endpoints...)
	}
	isReady := func(endpoint model.PortEndpoint) bool { return endpoint.Ready }
	reason, usable := exclusion.Reason, endpoint.Ready || terminating
	holds := usable != (reason.Code == NotReady)
	if reason.Code == TerminatingNotNeeded {
		holds = terminating && slices.ContainsFunc(chosen, isReady)
	}
	if reason.Code == NotOnThisNode {
		holds = endpoint.Node != "node-1" && selection.Local != nil
	}
	if reason.Code == HintedElsewhere {
		holds = endpoint.Ready && len(endpoint.HintNodes)+len(endpoint.HintZones) > 0
	}
	if !holds {
		t.Errorf("reason %+v does not hold for %+v", exclusion.Reason, endpoint)
	}
}

// checkFlows: flows may continue to exactly those serving endpoints that the policy or a topology key allows. These
// include the endpoints chosen for new connections.
func checkFlows(t *testing.T, s *scenario, endpoints []model.PortEndpoint, selection Selection) {
	t.Helper()
	decision := Decision{Viewpoint: s.viewpoint, Service: &s.service, Port: s.port, Endpoints: endpoints, Selection: selection}
	decision.Frontends = s.service.Frontends(s.port, model.IPv4)
	cluster, local, _ := decision.AllowedEndpoints()
	lists := map[bool][]netip.AddrPort{false: cluster, true: local}
	for _, frontend := range decision.Frontends {
		internalLocalOnly, externalLocalOnly := decision.IsLocalOnly(frontend.Kind)
		if frontend.Kind.IsExternal() {
			checkAllowed(t, s, endpoints, lists[internalLocalOnly], selection.ShortCircuit, false)
			checkAllowed(t, s, endpoints, lists[externalLocalOnly], selection.External, s.service.ExternalTrafficLocal)
		} else {
			checkAllowed(t, s, endpoints, lists[internalLocalOnly], selection.ClusterIP, s.service.InternalTrafficLocal)
			checkAllowed(t, s, endpoints, lists[externalLocalOnly], selection.ClusterIP, s.service.InternalTrafficLocal)
		}
	}
}

func checkAllowed(t *testing.T, s *scenario, endpoints []model.PortEndpoint, got []netip.AddrPort, serve func() (Choice, Outcome),
	local bool) {
	t.Helper()
	keys := s.service.Topology.Keys
	var want []netip.AddrPort
	for _, endpoint := range endpoints {
		allowed := len(keys) == 0 || slices.ContainsFunc(keys, func(key policy.Key) bool { return sameValue(s, key, endpoint) })
		if local {
			allowed = endpoint.Node == s.viewpoint.Node.Name
		}
		if allowed && (endpoint.Ready || endpoint.Serving) {
			want = append(want, endpoint.Addr)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("allowed endpoints %v, want %v", got, want)
	}
	choice, _ := serve()
	for _, endpoint := range choice.Endpoints {
		if !slices.Contains(got, endpoint.Addr) {
			t.Errorf("new connections go to %s, but only %v are allowed", endpoint.Addr, got)
		}
	}
}
