package ruleset_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// endpointIn is an element of the map of endpoints.
func endpointIn(slot uint32, endpoint string) ruleset.Element {
	addr := netip.MustParseAddrPort(endpoint)
	return ruleset.Element{
		Key:   ruleset.Tuple{Addr: netip.MustParseAddr("10.96.0.1"), Proto: model.TCP, Port: 80, Number: ruleset.ClusterSlot + slot},
		Value: ruleset.Tuple{Addr: addr.Addr(), Port: addr.Port()},
	}
}

func TestDifferencesIgnoreTheOrderOfSlots(t *testing.T) {
	var desired ruleset.Tables
	elements := []ruleset.Element{endpointIn(0, "10.0.0.1:80"), endpointIn(1, "10.0.0.2:80"), endpointIn(2, "10.0.0.2:80")}
	batch := ruleset.Batch{Ops: []ruleset.Op{
		{Verb: ruleset.Add, Family: model.IPv4, Object: ruleset.TableObject{}},
		{Verb: ruleset.Add, Family: model.IPv4, Object: ruleset.SetObject{Set: ruleset.Endpoints}},
		{Verb: ruleset.Add, Family: model.IPv4, Object: ruleset.ElementsObject{Set: ruleset.Endpoints, Elements: slices.Values(elements)}},
	}}
	if err := desired.Apply(batch); err != nil {
		t.Fatal(err)
	}
	const prefix = "ip vicinity map endpoints: 10.96.0.1 . tcp . 80 . fd00:0 : "
	for name, test := range map[string]struct {
		held []ruleset.Element
		want []string
	}{
		"the same":       {elements, nil},
		"in other slots": {[]ruleset.Element{endpointIn(2, "10.0.0.1:80"), endpointIn(0, "10.0.0.2:80"), endpointIn(1, "10.0.0.2:80")}, nil},
		"a missing slot": {elements[:2], []string{prefix + "10.0.0.2 . 80 is missing"}},
		"another endpoint": {
			append(slices.Clone(elements[:2]), endpointIn(2, "10.0.0.3:80")),
			[]string{prefix + "10.0.0.2 . 80 is missing", prefix + "10.0.0.3 . 80 is stray"},
		},
		"no elements":   {nil, []string{prefix + "10.0.0.1 . 80 is missing", prefix + "10.0.0.2 . 80, in 2 slots, is missing"}},
		"an extra slot": {append(slices.Clone(elements), endpointIn(3, "10.0.0.1:80")), []string{prefix + "10.0.0.1 . 80 is stray"}},
	} {
		var got []string
		for _, difference := range desired.Differences(model.IPv4, ruleset.Objects{
			Table: true, Contents: map[string][]ruleset.Element{ruleset.Endpoints.Name: test.held},
		}) {
			got = append(got, difference.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
