package policy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// annotated returns annotations by their short names: keys, load, clients, demand, mode, hints.
func annotated(short map[string]string) map[string]string {
	names := map[string]string{
		"keys": TopologyKeysAnnotation, "load": MaxLoadAnnotation, "clients": ClientsAnnotation, "demand": DemandSourceAnnotation,
		"mode": TopologyModeAnnotation, "hints": TopologyAwareHintsAnnotation,
	}
	annotations := map[string]string{}
	for name, value := range short {
		annotations[names[name]] = value
	}
	return annotations
}

// parsed is the result of Parse.
type parsed struct {
	Keys         []Key
	MaxLoad      uint64
	Clients      []string
	Measured     bool
	HintsSetting string
	Ignored      []IgnoredAnnotation
}

func parse(input Input) parsed {
	topology, ignored := Parse(input)
	return parsed{topology.Keys, topology.MaxLoad, topology.Clients, topology.Measured, topology.HintsSetting, ignored}
}

// ignoredOf parses ignored annotations: "annotation reason. annotation reason". A sentence without an annotation is
// about keys.
func ignoredOf(text string) (list []IgnoredAnnotation) {
	for text != "" {
		ignored := IgnoredAnnotation{Annotation: TopologyKeysAnnotation}
		for _, annotation := range [...]string{MaxLoadAnnotation, ClientsAnnotation, DemandSourceAnnotation, TopologyModeAnnotation} {
			if rest, found := strings.CutPrefix(text, annotation+" "); found {
				ignored.Annotation, text = annotation, rest
			}
		}
		end := len(text)
		for _, annotation := range [...]string{MaxLoadAnnotation, ClientsAnnotation, DemandSourceAnnotation, TopologyModeAnnotation} {
			if index := strings.Index(text, ". "+annotation+" "); index >= 0 {
				end = min(end, index)
			}
		}
		ignored.Reason, text = text[:end], strings.TrimPrefix(text[end:], ". ")
		list = append(list, ignored)
	}
	return list
}

// anyContains reports whether any reason contains a text.
func anyContains(list []IgnoredAnnotation, text string) bool {
	return slices.ContainsFunc(list, func(ignored IgnoredAnnotation) bool { return strings.Contains(ignored.Reason, text) })
}

func TestParseBounds(t *testing.T) {
	type short = map[string]string
	zone, nodeAndZone := []Key{Zone, AnyNode}, []Key{Hostname, Zone, AnyNode}
	rack := []Key{"rack"}
	const byDistribution, byMode = "spec.trafficDistribution: PreferSameZone", "service.kubernetes.io/topology-mode: Auto"
	const wrongLoad = `vicinity.dev/max-load "1.2" must be an integer from 100 to 1000, directly followed by %; write a percentage of ` +
		`the mean load, such as "120%"`
	for name, test := range map[string]struct {
		annotations  short
		distribution string
		local        bool
		byDefault    uint64
		measured     bool // by default
		headless     bool
		want         parsed
	}{
		"a bound with keys": {
			annotations: short{"keys": "rack", "load": "150%"}, want: parsed{Keys: rack, MaxLoad: 150},
		},
		"keys take precedence over trafficDistribution": {
			annotations: short{"keys": "rack", "load": "150%"}, distribution: PreferSameNode, want: parsed{Keys: rack, MaxLoad: 150},
		},
		"a bound with trafficDistribution": {
			annotations: short{"load": "150%"}, distribution: PreferSameZone, want: parsed{Keys: zone, MaxLoad: 150},
		},
		"PreferClose is PreferSameZone": {
			annotations: short{"load": "150%"}, distribution: PreferClose, want: parsed{Keys: zone, MaxLoad: 150},
		},
		"PreferSameNode prefers the node, then the zone": {
			annotations: short{"load": "150%"}, distribution: PreferSameNode, want: parsed{Keys: nodeAndZone, MaxLoad: 150},
		},
		"balanced alone": {annotations: short{"mode": ModeBalanced}, want: parsed{Keys: zone, MaxLoad: 120}},
		"balanced in the deprecated annotation": {
			annotations: short{"hints": ModeBalanced, "mode": ModeBalanced}, want: parsed{Keys: zone, MaxLoad: 120},
		},
		"balanced with keys": {
			annotations: short{"mode": ModeBalanced, "keys": "rack"}, want: parsed{Keys: rack, MaxLoad: 120},
		},
		"balanced with trafficDistribution": {
			annotations: short{"mode": ModeBalanced}, distribution: PreferSameNode, want: parsed{Keys: nodeAndZone, MaxLoad: 120},
		},
		"balanced with a bound": {
			annotations: short{"mode": ModeBalanced, "load": "100%"}, want: parsed{Keys: zone, MaxLoad: 100},
		},
		"balanced with the cluster's bound": {
			annotations: short{"mode": ModeBalanced}, byDefault: 200, want: parsed{Keys: zone, MaxLoad: 200},
		},
		"a bound with clients": {
			annotations: short{"mode": ModeBalanced, "clients": "ingress/nginx, shop/frontend"},
			want:        parsed{Keys: zone, MaxLoad: 120, Clients: []string{"ingress/nginx", "shop/frontend"}},
		},
		"a bound with measured demand": {
			annotations: short{"keys": "rack", "load": "150%", "demand": "measured"}, want: parsed{Keys: rack, MaxLoad: 150, Measured: true},
		},
		"a bound with measured demand and clients": {
			annotations: short{"mode": ModeBalanced, "clients": "ingress/nginx", "demand": "measured"},
			want:        parsed{Keys: zone, MaxLoad: 120, Clients: []string{"ingress/nginx"}, Measured: true},
		},
		"measured by default: a bounded Service without clients": {
			annotations: short{"keys": "rack", "load": "150%"}, measured: true, want: parsed{Keys: rack, MaxLoad: 150, Measured: true},
		},
		"measured by default: with the cluster's bound": {
			distribution: PreferSameZone, byDefault: 200, measured: true, want: parsed{Keys: zone, MaxLoad: 200, Measured: true},
		},
		"measured by default: not without a bound": {annotations: short{"keys": "rack"}, measured: true, want: parsed{Keys: rack}},
		"measured by default: not with clients": {
			annotations: short{"mode": ModeBalanced, "clients": "a/b"}, measured: true,
			want: parsed{Keys: zone, MaxLoad: 120, Clients: []string{"a/b"}},
		},
		"measured by default: with invalid clients": {
			annotations: short{"mode": ModeBalanced, "clients": "measured"}, measured: true,
			want: parsed{Keys: zone, MaxLoad: 120, Measured: true,
				Ignored: ignoredOf(`vicinity.dev/clients entry 1 "measured" is not the namespace ` +
					`and name of a Service; did you mean the annotation vicinity.dev/demand-source=measured?`)},
		},
		"an invalid demand source does not disable clients": {
			annotations: short{"mode": ModeBalanced, "clients": "a/b", "demand": "Measured"},
			want: parsed{Keys: zone, MaxLoad: 120, Clients: []string{"a/b"}, Ignored: ignoredOf(
				`vicinity.dev/demand-source "Measured" is not a demand source; the only one is "measured"`)},
		},
		"an invalid demand source: the cluster's default applies": {
			annotations: short{"mode": ModeBalanced, "demand": ""}, measured: true,
			want: parsed{Keys: zone, MaxLoad: 120, Measured: true, Ignored: ignoredOf(
				`vicinity.dev/demand-source "" is not a demand source; the only one is "measured"`)},
		},
		"a demand source without a bound has no effect": {
			annotations: short{"keys": "rack", "demand": "measured"},
			want:        parsed{Keys: rack, Ignored: ignoredOf("vicinity.dev/demand-source " + NeedsBound)},
		},
		"a headless Service is never measured": {
			annotations: short{"keys": "rack", "load": "150%", "clients": "a/b", "demand": "measured"}, headless: true,
			want: parsed{Keys: rack, MaxLoad: 150, Clients: []string{"a/b"}, Ignored: ignoredOf("vicinity.dev/demand-source " + MeasuredHeadless)},
		},
		"a headless Service with clients is not measured by default": {
			annotations: short{"keys": "rack", "load": "150%", "clients": "a/b"}, headless: true, measured: true,
			want: parsed{Keys: rack, MaxLoad: 150, Clients: []string{"a/b"}},
		},
		"a headless Service without clients is not measured by default": {
			annotations: short{"keys": "rack", "load": "150%"}, headless: true, measured: true, want: parsed{Keys: rack, MaxLoad: 150},
		},

		"trafficDistribution alone: hints apply": {distribution: PreferSameZone, want: parsed{HintsSetting: byDistribution}},
		"trafficDistribution with the mode Disabled: hints apply": {
			annotations: short{"mode": "Disabled"}, distribution: PreferSameZone, want: parsed{HintsSetting: byDistribution},
		},
		"an unknown trafficDistribution": {distribution: "Nearby", want: parsed{}},
		"the cluster's bound applies to keys": {
			annotations: short{"keys": "rack"}, byDefault: 200, want: parsed{Keys: rack, MaxLoad: 200},
		},
		"the cluster's bound applies to trafficDistribution": {
			distribution: PreferSameZone, byDefault: 200, want: parsed{Keys: zone, MaxLoad: 200},
		},
		"a Service's bound takes precedence over the cluster's": {
			annotations: short{"keys": "rack", "load": "150%"}, byDefault: 200, want: parsed{Keys: rack, MaxLoad: 150},
		},
		"the cluster's bound does not apply without a preference": {byDefault: 200, want: parsed{}},
		"the cluster's bound does not apply to * alone": {annotations: short{"keys": "*"}, byDefault: 200,
			want: parsed{Keys: []Key{AnyNode}}},
		"the cluster's bound does not apply with Auto": {
			annotations: short{"mode": "Auto"}, distribution: PreferSameZone, byDefault: 200, want: parsed{HintsSetting: byMode},
		},
		"the cluster's bound does not apply to keys with Auto": {annotations: short{"mode": "auto", "keys": "rack"}, byDefault: 200,
			want: parsed{Keys: rack}},
		"the cluster's bound does not apply with Local": {distribution: PreferSameZone, local: true, byDefault: 200,
			want: parsed{HintsSetting: byDistribution}},
		"the cluster's bound applies with Disabled": {
			annotations: short{"mode": "Disabled", "keys": "rack"}, byDefault: 200, want: parsed{Keys: rack, MaxLoad: 200},
		},
		"clients apply with the cluster's bound": {
			annotations: short{"keys": "rack", "clients": "a/b"}, byDefault: 200, want: parsed{Keys: rack, MaxLoad: 200, Clients: []string{"a/b"}},
		},

		"invalid keys disable all annotations": {
			annotations: short{"keys": "a b", "mode": ModeBalanced, "load": "1.2", "clients": "x"}, distribution: PreferSameZone, byDefault: 200,
			want: parse(Input{Annotations: annotated(short{"keys": "a b"}), TrafficDistribution: PreferSameZone}),
		},
		"keys with Local disable all annotations": {
			annotations: short{"keys": "rack", "load": "120%"}, local: true,
			want: parsed{Ignored: ignoredOf("topology keys " + LocalConflict + "; " + LocalRemedy)},
		},
		"an invalid bound: the default applies": {
			annotations: short{"keys": "rack", "load": "1.2"},
			want:        parsed{Keys: rack, MaxLoad: 120, Ignored: ignoredOf(wrongLoad + " (until then 120% applies)")},
		},
		"an invalid bound: the cluster's applies": {
			annotations: short{"keys": "rack", "load": "1.2"}, byDefault: 200,
			want: parsed{Keys: rack, MaxLoad: 200, Ignored: ignoredOf(wrongLoad + " (until then 200% applies)")},
		},
		"an invalid bound with trafficDistribution": {
			annotations: short{"load": "1.2"}, distribution: PreferSameZone,
			want: parsed{Keys: zone, MaxLoad: 120, Ignored: ignoredOf(wrongLoad + " (until then 120% applies)")},
		},
		"nothing to bound": {
			annotations: short{"load": "120%"}, want: parsed{Ignored: ignoredOf("vicinity.dev/max-load " + ReasonNothingToBound(nil))},
		},
		"nothing to bound: an unknown trafficDistribution": {
			annotations: short{"load": "120%"}, distribution: "Nearby",
			want: parsed{Ignored: ignoredOf("vicinity.dev/max-load " + ReasonNothingToBound(nil))},
		},
		"an invalid bound and nothing to bound: both are reported": {
			annotations: short{"load": "1.2"}, want: parsed{Ignored: ignoredOf(wrongLoad + ". vicinity.dev/max-load " + ReasonNothingToBound(nil))},
		},
		"nothing to bound: * alone": {
			annotations: short{"keys": "*", "load": "120%"},
			want:        parsed{Keys: []Key{AnyNode}, Ignored: ignoredOf("vicinity.dev/max-load " + ReasonNothingToBound([]Key{AnyNode}))},
		},
		"nothing to bound: * alone with balanced": {
			annotations: short{"keys": "*", "mode": ModeBalanced}, distribution: PreferSameZone,
			want: parsed{Keys: []Key{AnyNode}, Ignored: ignoredOf("service.kubernetes.io/topology-mode " + ReasonNothingToBound([]Key{AnyNode}))},
		},
		"a bound conflicts with Auto": {
			annotations: short{"mode": "Auto", "load": "120%"}, distribution: PreferSameZone,
			want: parsed{HintsSetting: byMode,
				Ignored: ignoredOf("vicinity.dev/max-load may not be used with service.kubernetes.io/topology-mode=Auto; " +
					"set service.kubernetes.io/topology-mode=vicinity.dev/balanced")},
		},
		"keys and their bound take precedence over Auto": {
			annotations: short{"mode": "Auto", "load": "150%", "keys": "rack"}, want: parsed{Keys: rack, MaxLoad: 150},
		},
		"a bound conflicts with Local": {
			annotations: short{"load": "120%"}, distribution: PreferSameZone, local: true,
			want: parsed{HintsSetting: byDistribution, Ignored: ignoredOf("vicinity.dev/max-load " + LocalConflict + "; " + LocalRemedy)},
		},
		"balanced conflicts with Local": {
			annotations: short{"mode": ModeBalanced}, local: true,
			want: parsed{Ignored: ignoredOf("service.kubernetes.io/topology-mode " + LocalConflict + "; " + LocalRemedy)},
		},
		"the deprecated annotation takes precedence over balanced": {
			annotations: short{"mode": ModeBalanced, "hints": "Auto", "keys": "rack"},
			want:        parsed{Keys: rack, Ignored: ignoredOf("service.kubernetes.io/topology-mode " + BalancedConflict)},
		},
		"a misspelled mode is reported, and the rest applies": {
			annotations: short{"mode": "vicinity.dev/ballanced", "keys": "rack", "load": "150%"},
			want: parsed{Keys: rack, MaxLoad: 150, Ignored: ignoredOf(`service.kubernetes.io/topology-mode "vicinity.dev/ballanced" is not a mode ` +
				`of vicinity.dev; did you mean "vicinity.dev/balanced"?`)},
		},
		"a mode in upper case": {
			annotations: short{"mode": " Vicinity.dev/Balanced"},
			want: parsed{Ignored: ignoredOf(`service.kubernetes.io/topology-mode " Vicinity.dev/Balanced" is not a mode of vicinity.dev; ` +
				`did you mean "vicinity.dev/balanced"?`)},
		},
		"an unknown mode in our domain": {
			annotations: short{"mode": "vicinity.dev/x"},
			want: parsed{Ignored: ignoredOf(`service.kubernetes.io/topology-mode "vicinity.dev/x" is not a mode of vicinity.dev; ` +
				`the only one is "vicinity.dev/balanced"`)},
		},
		"a mode in another domain": {annotations: short{"mode": "example.com/balanced"}, want: parsed{}},
		"invalid clients do not disable the bound": {
			annotations: short{"mode": ModeBalanced, "clients": "frontend"},
			want: parsed{Keys: zone, MaxLoad: 120,
				Ignored: ignoredOf(`vicinity.dev/clients entry 1 "frontend" lacks the namespace of the Service; ` +
					`did you mean "shop/frontend"?`)},
		},
		"clients without a bound": {
			annotations: short{"keys": "rack", "clients": "a/b"},
			want:        parsed{Keys: rack, Ignored: ignoredOf("vicinity.dev/clients " + NeedsBound)},
		},
		"clients without a bound, measured by default": {
			annotations: short{"keys": "rack", "clients": "a/b"}, measured: true,
			want: parsed{Keys: rack, Ignored: ignoredOf("vicinity.dev/clients " + NeedsBound)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(Input{
				Namespace: "shop", Annotations: annotated(test.annotations), TrafficDistribution: test.distribution, ExternalTrafficLocal: test.local,
				DefaultMaxLoad: test.byDefault, DefaultMeasured: test.measured, IsHeadless: test.headless,
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Parse(%q) differs (-want +got):\n%s", test.annotations, diff)
			}
		})
	}
}

// TestBoundInvariants: for any input, a bound is in its range and has keys, and clients have a bound. A Service that
// requests a bound has one, or a reason why not. An invalid bound does not disable the keys.
func TestBoundInvariants(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	maybeSet := func(annotations map[string]string, key string, values ...string) {
		if random.IntN(2) == 0 {
			annotations[key] = values[random.IntN(len(values))]
		}
	}
	bounded := 0
	for range 50_000 {
		annotations := map[string]string{}
		maybeSet(annotations, TopologyKeysAnnotation, "rack", "rack, *", "*", "a b", "")
		maybeSet(annotations, MaxLoadAnnotation, "120%", "1000%", "1.2", "")
		maybeSet(annotations, ClientsAnnotation, "a/b", "b", "", "measured", "a/b, measured")
		maybeSet(annotations, DemandSourceAnnotation, "measured", "measured", "Measured", "")
		maybeSet(annotations, TopologyModeAnnotation, ModeBalanced, "Auto", "Disabled", "vicinity.dev/x")
		maybeSet(annotations, TopologyAwareHintsAnnotation, ModeBalanced, "Auto", "x")
		input := Input{
			Annotations: annotations, ExternalTrafficLocal: random.IntN(4) == 0, DefaultMaxLoad: uint64(random.IntN(2) * 300),
			DefaultMeasured: random.IntN(2) == 0, IsHeadless: random.IntN(4) == 0,
			TrafficDistribution: []string{"", PreferSameZone, PreferSameNode, "x"}[random.IntN(4)],
		}
		got := parse(input)
		if got.MaxLoad > 0 {
			bounded++
		}
		if got.MaxLoad != 0 && (got.MaxLoad < MinLoadBound || got.MaxLoad > MaxLoadBound || len(got.Keys) == 0 ||
			!ConflictsWithLocal(got.Keys)) ||
			(len(got.Clients) > 0 || got.Measured) && got.MaxLoad == 0 || got.Measured && input.IsHeadless {
			t.Fatalf("Parse(%+v) = %+v", input, got)
		}
		_, hasLoad := annotations[MaxLoadAnnotation]
		if (hasLoad || annotations[TopologyModeAnnotation] == ModeBalanced) && got.MaxLoad == 0 && len(got.Ignored) == 0 {
			t.Fatalf("the requested bound is absent, without a reason: Parse(%+v) = %+v", input, got)
		}
		if _, hasClients := annotations[ClientsAnnotation]; hasClients && len(got.Clients) == 0 && len(got.Ignored) == 0 {
			t.Fatalf("the clients are absent, without a reason: Parse(%+v) = %+v", input, got)
		}
		if _, hasSource := annotations[DemandSourceAnnotation]; hasSource && !got.Measured && len(got.Ignored) == 0 {
			t.Fatalf("demand is not measured, without a reason: Parse(%+v) = %+v", input, got)
		}
		if annotations[MaxLoadAnnotation] != "1.2" {
			continue
		}
		annotations[MaxLoadAnnotation] = FormatMaxLoad(input.defaultMaxLoad())
		corrected := parse(input)
		if diff := cmp.Diff(corrected.Keys, got.Keys); diff != "" || corrected.MaxLoad != got.MaxLoad || !anyContains(got.Ignored, ";") {
			t.Fatalf("with the default bound: %+v, with an invalid bound: %+v; want equal keys and bounds, and a reason", corrected, got)
		}
	}
	if bounded < 5000 {
		t.Errorf("only %d inputs have a bound, want at least 5000", bounded)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("rack, *", "120%", "a/b", "", ModeBalanced, "Auto", PreferSameZone, "shop")
	f.Add("rack, *", "120%", "a/b", "measured", "", "", "", "shop")
	f.Add("*", "1.2", "b", "Measured", "vicinity.dev/x", "", "", "")
	f.Fuzz(func(t *testing.T, keys, load, clients, demand, mode, hints, distribution, namespace string) {
		annotations := annotated(map[string]string{
			"keys": keys, "load": load, "clients": clients, "demand": demand, "mode": mode, "hints": hints,
		})
		for name, value := range annotations {
			if value == "" {
				delete(annotations, name)
			}
		}
		for _, local := range []bool{false, true} {
			got := parse(Input{Namespace: namespace, Annotations: annotations, TrafficDistribution: distribution, ExternalTrafficLocal: local})
			if got.MaxLoad > 0 && len(got.Keys) == 0 || (len(got.Clients) > 0 || got.Measured) && got.MaxLoad == 0 ||
				len(got.Ignored) > 8 {
				t.Errorf("Parse(%q) = %+v", annotations, got)
			}
		}
	})
}
