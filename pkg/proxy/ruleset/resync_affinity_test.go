package ruleset_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// learnt adds a client to the map of web's endpoints on port 8080, as the learn chain does.
func learnt(t testing.TB, tables *ruleset.Tables, client, endpoint string) {
	t.Helper()
	mustApply(t, tables, ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Object: ruleset.ElementsObject{
		Set: clients, Elements: slices.Values([]ruleset.Element{{
			Key: ruleset.Tuple{Addr: netip.MustParseAddr(client)}, Value: ruleset.Tuple{Addr: netip.MustParseAddr(endpoint)},
		}}),
	}}}})
}

var clients = ruleset.Affinity("affinity-default/web/tcp/http/8080")

func TestResyncAndTheClientsThatAreRemembered(t *testing.T) {
	web := func(endpoints ...string) ruleset.Service {
		return serviceOf(sticky(portOf("web", "10.96.0.1", endpoints...), time.Hour))
	}
	const client, name = "192.0.2.7 => 10.244.1.1", "affinity-default/web/tcp/http/8080"
	for title, test := range map[string]struct {
		wanted     ruleset.Service
		change     func(*ruleset.Objects)
		remembered []string
		left       []string
	}{
		"they are kept, and their map is named":             {web(first, second), asFound, []string{client}, []string{name}},
		"an endpoint that leaves is the caller's to forget": {web(second), asFound, []string{client}, []string{name}},
		"another timeout changes nothing for them": {
			serviceOf(sticky(portOf("web", "10.96.0.1", first), time.Minute)), asFound, []string{client}, []string{name},
		},
		"a map that is new is not named":                {web(first, third), asFound, []string{client}, []string{name}},
		"a table that is made anew remembers no client": {web(first, second), rebuild, nil, nil},
		"without affinity their map is swept":           {serviceOf(portOf("web", "10.96.0.1", first)), asFound, nil, nil},
	} {
		t.Run(title, func(t *testing.T) {
			r := start(t, web(first, second))
			learnt(t, &r.Tables, "192.0.2.7", "10.244.1.1")
			_, plan := resync(t, &r.Tables, services(test.wanted), test.change)
			var remembered, left []string
			if elements, err := r.Elements(model.IPv4, clients); err == nil {
				remembered = elementsInShort(clients, elements)
			}
			for _, affinity := range plan.Left {
				left = append(left, affinity.Set.Name)
			}
			if diff := cmp.Diff(test.remembered, remembered); diff != "" {
				t.Errorf("remembered (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.left, left); diff != "" {
				t.Errorf("maps to look through (-want +got):\n%s", diff)
			}
		})
	}
}

// TestResyncNamesTheMapsOfEachFamily, though both families' have one name: only one of the tables is made anew.
func TestResyncNamesTheMapsOfEachFamily(t *testing.T) {
	web := serviceOf(
		sticky(portOf("web", "10.96.0.1", first), time.Hour), sticky(portOf("web", "fd00:96::1", "[fd00:244::1]:8080"), time.Hour),
	)
	for _, kept := range model.Families {
		r := start(t, web)
		found := map[model.Family]ruleset.Objects{kept: r.Objects(kept)}
		_, plan := ruleset.Resync(bothFamilies, services(web), home, found)
		if len(plan.Left) != 1 || plan.Left[0].Family != kept || plan.Left[0].Set.Name != clients.Name {
			t.Errorf("with the %s table alone to be found, the maps to look through are %+v", kept, plan.Left)
		}
	}
}

func TestSweepAfterResyncRemovesExactlyTheLeftovers(t *testing.T) {
	r := start(t, serviceOf(sticky(portOf("old", "10.96.0.9", first, second), time.Hour)), serviceOf(portOf("web", "10.96.0.1", first)))
	found := map[model.Family]ruleset.Objects{model.IPv4: r.Objects(model.IPv4), model.IPv6: r.Objects(model.IPv6)}
	mirror, plan := ruleset.Resync(bothFamilies, services(serviceOf(portOf("web", "10.96.0.1", third))), home, found)
	mustApply(t, &r.Tables, plan.Batch)
	const learn, stick = "learn-default/old/tcp/http", "sticky-default/old/tcp/http"
	flushed := []string{"0 chain lb-2", "0 chain " + learn, "0 chain " + stick}
	sets := append(slices.Clone(flushed), "- set affinity-default/old/tcp/http/8080")
	chains := append(slices.Clone(flushed), "- chain lb-2", "- chain "+learn, "- chain "+stick)
	for _, want := range [][]string{sets, chains} {
		for _, try := range []string{"first", "after a sweep that failed"} {
			if diff := cmp.Diff(want, operations(mirror.Sweep())); diff != "" {
				t.Errorf("%s: sweep (-want +got):\n%s", try, diff)
			}
		}
		mustApply(t, &r.Tables, mirror.Sweep())
		mirror.Swept()
	}
	if again := operations(mirror.Sweep()); again != nil {
		t.Errorf("what was swept is swept again: %v", again)
	}
}
