package ruleset_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func TestPlansOfAffinity(t *testing.T) {
	plain := portOf("web", "10.96.0.1", first, second)
	other := portOf("web", "10.96.0.1", first, third)
	const dialled = "10.96.0.1 80"
	jumps := func(verb string) []string {
		return []string{
			verb + " sticky: " + dialled + " => jump sticky-default/web/tcp/http",
			verb + " learn: " + dialled + " => goto learn-default/web/tcp/http",
			verb + " sticky-endpoints: " + dialled + " 10.244.1.1, " + dialled + " 10.244.2.2",
		}
	}
	rewrite := func(chains ...string) (all []string) {
		for _, chain := range chains {
			all = append(all, "+ chain "+chain, "0 chain "+chain)
		}
		for _, chain := range chains {
			all = append(all, "+ rules of "+chain)
		}
		return all
	}
	const learn, stick, clients = "learn-default/web/tcp/http", "sticky-default/web/tcp/http", "affinity-default/web/tcp/http/"
	empty := func(port string) []string { return []string{"+ set " + clients + port, "0 set " + clients + port} }
	join := func(lists ...[]string) (all []string) {
		for _, list := range lists {
			all = append(all, list...)
		}
		return all
	}
	checkPlans(t, map[string]planCase{
		"affinity is switched on: an empty map, then the chains that use it, then the jumps": {
			have: services(serviceOf(plain)), want: services(serviceOf(sticky(plain, time.Hour))),
			plan: join(empty("8080"), rewrite(learn, stick), jumps("+")),
		},
		"affinity is switched off: the jumps at once, chains and map with the sweep": {
			have: services(serviceOf(sticky(plain, time.Hour))), want: services(serviceOf(plain)),
			plan: jumps("-"),
			sweep: []string{
				"0 chain " + learn, "0 chain " + stick, "- set " + clients + "8080",
				"0 chain " + learn, "0 chain " + stick, "- chain " + learn, "- chain " + stick,
			},
		},
		"another timeout: the learn chain alone": {
			have: services(serviceOf(sticky(plain, time.Hour))), want: services(serviceOf(sticky(plain, time.Minute))),
			plan: rewrite(learn),
		},
		"an endpoint with another port number: a map for it": {
			have: services(serviceOf(sticky(plain, time.Hour))), want: services(serviceOf(sticky(other, time.Hour))),
			plan: join(empty("9090"), rewrite(learn, stick), []string{
				"- endpoints: " + dialled + " slot/1 => 10.244.2.2 8080", "- sticky-endpoints: " + dialled + " 10.244.2.2",
				"+ endpoints: " + dialled + " slot/1 => 10.244.3.3 9090", "+ sticky-endpoints: " + dialled + " 10.244.3.3",
			}),
		},
		"the last endpoint of a port number leaves: its map goes with the sweep": {
			have: services(serviceOf(sticky(other, time.Hour))), want: services(serviceOf(sticky(plain, time.Hour))),
			plan: join(rewrite(learn, stick), []string{
				"- endpoints: " + dialled + " slot/1 => 10.244.3.3 9090", "- sticky-endpoints: " + dialled + " 10.244.3.3",
				"+ endpoints: " + dialled + " slot/1 => 10.244.2.2 8080", "+ sticky-endpoints: " + dialled + " 10.244.2.2",
			}),
			sweep: []string{"- set " + clients + "9090"},
		},
	})
}

// TestASlotThatComesBackBeforeTheSweepIsReplaced: the kernel still has the slot, with the endpoint it had.
func TestASlotThatComesBackBeforeTheSweepIsReplaced(t *testing.T) {
	r := start(t, serviceOf(portOf("web", "10.96.0.1", first, second)))
	r.change(t, serviceOf(portOf("web", "10.96.0.1", first)))
	plan := r.change(t, serviceOf(portOf("web", "10.96.0.1", first, third)))
	want := []string{
		"+ chain lb-2", "0 chain lb-2", "+ rules of lb-2", "+ dispatch: class/2 => jump lb-2",
		"- services: 10.96.0.1 80 => class/1", "- endpoints: 10.96.0.1 80 slot/1 => 10.244.2.2 8080",
		"+ services: 10.96.0.1 80 => class/2", "+ endpoints: 10.96.0.1 80 slot/1 => 10.244.3.3 9090",
	}
	if diff := cmp.Diff(want, planned(plan)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"- dispatch: class/1 => jump lb-1", "0 chain lb-1", "- chain lb-1"}, r.sweep(t)); diff != "" {
		t.Errorf("sweep (-want +got):\n%s", diff)
	}
}

// TestALeftoverIsTakenUpAgain, emptied: what comes back before the sweep must not bring clients of another time along.
func TestALeftoverIsTakenUpAgain(t *testing.T) {
	plain := portOf("web", "10.96.0.1", first)
	r := start(t, serviceOf(sticky(plain, time.Hour)))
	r.change(t, serviceOf(portOf("web", "10.96.0.1")))
	plan := r.change(t, serviceOf(sticky(plain, time.Hour)))
	const clients = "set affinity-default/web/tcp/http/8080"
	if diff := cmp.Diff([]string{"+ " + clients, "0 " + clients}, planned(plan)[:2]); diff != "" {
		t.Errorf("first operations (-want +got):\n%s", diff)
	}
	// No client is refused any more; all else is in use again.
	if diff := cmp.Diff([]string{"- dispatch: refuse => goto refuse"}, r.sweep(t)); diff != "" {
		t.Errorf("sweep (-want +got):\n%s", diff)
	}
}

func TestLeftNamesTheMapsThatAnEndpointLeaves(t *testing.T) {
	const clients = "affinity-default/web/tcp/http/"
	port := func(endpoints ...string) ruleset.Service {
		return serviceOf(sticky(portOf("web", "10.96.0.1", endpoints...), time.Hour))
	}
	keys := func(s *model.Service) { s.Topology.Keys = noKeys }
	both := slices.Concat(on1(1), on2(2))
	keptLocal := func(pods []pod, changes ...func(*model.Service)) ruleset.Service {
		return everyKindWith(pods, append(changes, externalLocal, affinity)...)[0]
	}
	for name, test := range map[string]struct {
		have, want ruleset.Service
		left       []string
	}{
		"none, if nothing changes":        {port(first, second), port(first, second), nil},
		"none, if an endpoint comes":      {port(first), port(first, second), nil},
		"the map that an endpoint leaves": {port(first, second, third), port(second, third), []string{clients + "8080"}},
		"none, if the whole map goes":     {port(first, third), port(first), nil},
		"every map that an endpoint leaves": {
			port(first, second, third, "10.244.4.4:9090"), port(second, third), []string{clients + "8080", clients + "9090"},
		},
		"none, if an endpoint keeps one of its slots": {port(first, second, first, first), port(second, first), nil},
		"the map, if an endpoint gives all its slots to another": {
			port(first, second, first), port(second, second, second), []string{clients + "8080"},
		},
		"none, if all endpoints leave":          {port(first, second), serviceOf(portOf("web", "10.96.0.1")), nil},
		"none, if affinity is switched off":     {port(first, second), serviceOf(portOf("web", "10.96.0.1", first)), nil},
		"none, if affinity is switched on":      {serviceOf(portOf("web", "10.96.0.1", first, second)), port(first), nil},
		"none, if the Service leaves":           {port(first, second), nothing("web"), nil},
		"none of two views, if nothing changes": {keptLocal(both), keptLocal(both), nil},
		"only the view of all nodes, if a pod leaves another node": {
			keptLocal(slices.Concat(both, on2(3))), keptLocal(both), []string{clients + "8080"},
		},
		"both views, if a pod leaves this node": {
			keptLocal(slices.Concat(both, on1(3))), keptLocal(both), []string{clients + "8080", clients + "8080/local"},
		},
		"the local view, if it alone had the pod": {
			keptLocal(on1(1, 3), keys), keptLocal(on1(1), keys), []string{clients + "8080/local"},
		},
		"none, if a view comes beside another":  {keptLocal(on1(1), keys), keptLocal(on1(1)), nil},
		"the map, if a pod changes its address": {port(first), port("10.244.9.9:8080"), []string{clients + "8080"}},
	} {
		t.Run(name, func(t *testing.T) {
			var left []string
			for _, affinity := range start(t, test.have).change(t, test.want).Left {
				left = append(left, affinity.Set.Name)
			}
			if diff := cmp.Diff(test.left, left); diff != "" {
				t.Errorf("left maps (-want +got):\n%s", diff)
			}
		})
	}
}
