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
	Keys     []Key
	MaxLoad  uint64
	Clients  []string
	Measured bool
	ByHints  string
	Ignored  []Ignored
}

func parse(w Input) parsed {
	topology, ignored := Parse(w)
	return parsed{topology.Keys, topology.MaxLoad, topology.Clients, topology.Measured, topology.ByHints, ignored}
}

// ignoredOf parses ignored annotations: "annotation reason. annotation reason". A sentence without an annotation is
// about keys.
func ignoredOf(text string) (list []Ignored) {
	for text != "" {
		one := Ignored{Annotation: TopologyKeysAnnotation}
		for _, annotation := range [...]string{MaxLoadAnnotation, ClientsAnnotation, DemandSourceAnnotation, TopologyModeAnnotation} {
			if rest, found := strings.CutPrefix(text, annotation+" "); found {
				one.Annotation, text = annotation, rest
			}
		}
		next := len(text)
		for _, annotation := range [...]string{MaxLoadAnnotation, ClientsAnnotation, DemandSourceAnnotation, TopologyModeAnnotation} {
			if at := strings.Index(text, ". "+annotation+" "); at >= 0 {
				next = min(next, at)
			}
		}
		one.Reason, text = text[:next], strings.TrimPrefix(text[next:], ". ")
		list = append(list, one)
	}
	return list
}

// anyContains reports whether a reason contains some words.
func anyContains(list []Ignored, words string) bool {
	return slices.ContainsFunc(list, func(ignored Ignored) bool { return strings.Contains(ignored.Reason, words) })
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
		"a bound is about the keys": {
			annotations: short{"keys": "rack", "load": "150%"}, want: parsed{Keys: rack, MaxLoad: 150},
		},
		"keys come before trafficDistribution": {
			annotations: short{"keys": "rack", "load": "150%"}, distribution: PreferSameNode, want: parsed{Keys: rack, MaxLoad: 150},
		},
		"without keys it is about trafficDistribution": {
			annotations: short{"load": "150%"}, distribution: PreferSameZone, want: parsed{Keys: zone, MaxLoad: 150},
		},
		"PreferClose is PreferSameZone": {
			annotations: short{"load": "150%"}, distribution: PreferClose, want: parsed{Keys: zone, MaxLoad: 150},
		},
		"PreferSameNode falls back to the zone": {
			annotations: short{"load": "150%"}, distribution: PreferSameNode, want: parsed{Keys: nodeAndZone, MaxLoad: 150},
		},
		"balanced is the short form": {annotations: short{"mode": ModeBalanced}, want: parsed{Keys: zone, MaxLoad: 120}},
		"the deprecated annotation says the same": {
			annotations: short{"hints": ModeBalanced, "mode": ModeBalanced}, want: parsed{Keys: zone, MaxLoad: 120},
		},
		"balanced is about the keys": {
			annotations: short{"mode": ModeBalanced, "keys": "rack"}, want: parsed{Keys: rack, MaxLoad: 120},
		},
		"balanced is about trafficDistribution": {
			annotations: short{"mode": ModeBalanced}, distribution: PreferSameNode, want: parsed{Keys: nodeAndZone, MaxLoad: 120},
		},
		"balanced with a bound of its own": {
			annotations: short{"mode": ModeBalanced, "load": "100%"}, want: parsed{Keys: zone, MaxLoad: 100},
		},
		"the cluster's bound is what balanced means there": {
			annotations: short{"mode": ModeBalanced}, byDefault: 200, want: parsed{Keys: zone, MaxLoad: 200},
		},
		"clients are kept beside a bound": {
			annotations: short{"mode": ModeBalanced, "clients": "ingress/nginx, shop/frontend"},
			want:        parsed{Keys: zone, MaxLoad: 120, Clients: []string{"ingress/nginx", "shop/frontend"}},
		},
		"demand is measured beside a bound": {
			annotations: short{"keys": "rack", "load": "150%", "demand": "measured"}, want: parsed{Keys: rack, MaxLoad: 150, Measured: true},
		},
		"and that of clients until then": {
			annotations: short{"mode": ModeBalanced, "clients": "ingress/nginx", "demand": "measured"},
			want:        parsed{Keys: zone, MaxLoad: 120, Clients: []string{"ingress/nginx"}, Measured: true},
		},
		"a bounded Service that names no clients is measured by default": {
			annotations: short{"keys": "rack", "load": "150%"}, measured: true, want: parsed{Keys: rack, MaxLoad: 150, Measured: true},
		},
		"also with the cluster's bound": {
			distribution: PreferSameZone, byDefault: 200, measured: true, want: parsed{Keys: zone, MaxLoad: 200, Measured: true},
		},
		"without a bound it is not": {annotations: short{"keys": "rack"}, measured: true, want: parsed{Keys: rack}},
		"where clients are named they are": {
			annotations: short{"mode": ModeBalanced, "clients": "a/b"}, measured: true,
			want: parsed{Keys: zone, MaxLoad: 120, Clients: []string{"a/b"}},
		},
		"where they cannot be read it is measured by default all the same": {
			annotations: short{"mode": ModeBalanced, "clients": "measured"}, measured: true,
			want: parsed{Keys: zone, MaxLoad: 120, Measured: true,
				Ignored: ignoredOf(`vicinity.dev/clients entry 1 "measured" is not the namespace ` +
					`and name of a Service; did you mean the annotation vicinity.dev/demand-source=measured?`)},
		},
		"a demand source that is none is ignored, and clients are not": {
			annotations: short{"mode": ModeBalanced, "clients": "a/b", "demand": "Measured"},
			want: parsed{Keys: zone, MaxLoad: 120, Clients: []string{"a/b"}, Ignored: ignoredOf(
				`vicinity.dev/demand-source "Measured" is not a demand source; the only one is "measured"`)},
		},
		"and the cluster's default counts": {
			annotations: short{"mode": ModeBalanced, "demand": ""}, measured: true,
			want: parsed{Keys: zone, MaxLoad: 120, Measured: true, Ignored: ignoredOf(
				`vicinity.dev/demand-source "" is not a demand source; the only one is "measured"`)},
		},
		"a demand source without a bound has no effect": {
			annotations: short{"keys": "rack", "demand": "measured"},
			want:        parsed{Keys: rack, Ignored: ignoredOf("vicinity.dev/demand-source " + ClientsNeedBound)},
		},
		"a headless Service is not measured": {
			annotations: short{"keys": "rack", "load": "150%", "clients": "a/b", "demand": "measured"}, headless: true,
			want: parsed{Keys: rack, MaxLoad: 150, Clients: []string{"a/b"}, Ignored: ignoredOf("vicinity.dev/demand-source " + MeasuredHeadless)},
		},
		"nor by default, and can name its clients": {
			annotations: short{"keys": "rack", "load": "150%", "clients": "a/b"}, headless: true, measured: true,
			want: parsed{Keys: rack, MaxLoad: 150, Clients: []string{"a/b"}},
		},
		"nor does one that names none": {
			annotations: short{"keys": "rack", "load": "150%"}, headless: true, measured: true, want: parsed{Keys: rack, MaxLoad: 150},
		},

		"trafficDistribution alone is the hints' matter": {distribution: PreferSameZone, want: parsed{ByHints: byDistribution}},
		"also if an annotation asks for no hints": {
			annotations: short{"mode": "Disabled"}, distribution: PreferSameZone, want: parsed{ByHints: byDistribution},
		},
		"and one that nobody knows is nobody's": {distribution: "Nearby", want: parsed{}},
		"the cluster's bound is about keys": {
			annotations: short{"keys": "rack"}, byDefault: 200, want: parsed{Keys: rack, MaxLoad: 200},
		},
		"the cluster's bound is about trafficDistribution": {
			distribution: PreferSameZone, byDefault: 200, want: parsed{Keys: zone, MaxLoad: 200},
		},
		"a Service's own bound beats the cluster's": {
			annotations: short{"keys": "rack", "load": "150%"}, byDefault: 200, want: parsed{Keys: rack, MaxLoad: 150},
		},
		"the cluster's bound is not for Services without preference": {byDefault: 200, want: parsed{}},
		"nor for * alone": {annotations: short{"keys": "*"}, byDefault: 200, want: parsed{Keys: []Key{AnyNode}}},
		"nor beside Auto": {
			annotations: short{"mode": "Auto"}, distribution: PreferSameZone, byDefault: 200, want: parsed{ByHints: byMode},
		},
		"nor for keys beside Auto": {annotations: short{"mode": "auto", "keys": "rack"}, byDefault: 200, want: parsed{Keys: rack}},
		"nor beside Local":         {distribution: PreferSameZone, local: true, byDefault: 200, want: parsed{ByHints: byDistribution}},
		"Disabled does not forbid it": {
			annotations: short{"mode": "Disabled", "keys": "rack"}, byDefault: 200, want: parsed{Keys: rack, MaxLoad: 200},
		},
		"with the cluster's bound clients count": {
			annotations: short{"keys": "rack", "clients": "a/b"}, byDefault: 200, want: parsed{Keys: rack, MaxLoad: 200, Clients: []string{"a/b"}},
		},

		"wrong keys take everything with them": {
			annotations: short{"keys": "a b", "mode": ModeBalanced, "load": "1.2", "clients": "x"}, distribution: PreferSameZone, byDefault: 200,
			want: parse(Input{Annotations: annotated(short{"keys": "a b"}), TrafficDistribution: PreferSameZone}),
		},
		"keys beside Local take everything with them": {
			annotations: short{"keys": "rack", "load": "120%"}, local: true,
			want: parsed{Ignored: ignoredOf("topology keys " + LocalConflict + "; " + LocalRemedy)},
		},
		"a bound that cannot be read is the usual one": {
			annotations: short{"keys": "rack", "load": "1.2"},
			want:        parsed{Keys: rack, MaxLoad: 120, Ignored: ignoredOf(wrongLoad + " (until then 120% applies)")},
		},
		"or the cluster's": {
			annotations: short{"keys": "rack", "load": "1.2"}, byDefault: 200,
			want: parsed{Keys: rack, MaxLoad: 200, Ignored: ignoredOf(wrongLoad + " (until then 200% applies)")},
		},
		"also for trafficDistribution": {
			annotations: short{"load": "1.2"}, distribution: PreferSameZone,
			want: parsed{Keys: zone, MaxLoad: 120, Ignored: ignoredOf(wrongLoad + " (until then 120% applies)")},
		},
		"without anything to bound there is none": {
			annotations: short{"load": "120%"}, want: parsed{Ignored: ignoredOf("vicinity.dev/max-load " + ReasonNothingToBound(nil))},
		},
		"a distribution that nobody knows is nothing to bound": {
			annotations: short{"load": "120%"}, distribution: "Nearby",
			want: parsed{Ignored: ignoredOf("vicinity.dev/max-load " + ReasonNothingToBound(nil))},
		},
		"all that is wrong with a bound is told": {
			annotations: short{"load": "1.2"}, want: parsed{Ignored: ignoredOf(wrongLoad + ". vicinity.dev/max-load " + ReasonNothingToBound(nil))},
		},
		"* alone is nothing to bound": {
			annotations: short{"keys": "*", "load": "120%"},
			want:        parsed{Keys: []Key{AnyNode}, Ignored: ignoredOf("vicinity.dev/max-load " + ReasonNothingToBound([]Key{AnyNode}))},
		},
		"not for balanced either": {
			annotations: short{"keys": "*", "mode": ModeBalanced}, distribution: PreferSameZone,
			want: parsed{Keys: []Key{AnyNode}, Ignored: ignoredOf("service.kubernetes.io/topology-mode " + ReasonNothingToBound([]Key{AnyNode}))},
		},
		"a bound gives way to Auto": {
			annotations: short{"mode": "Auto", "load": "120%"}, distribution: PreferSameZone,
			want: parsed{ByHints: byMode,
				Ignored: ignoredOf("vicinity.dev/max-load may not be used with service.kubernetes.io/topology-mode=Auto; " +
					"set service.kubernetes.io/topology-mode=vicinity.dev/balanced")},
		},
		"keys do not give way to Auto, nor does their bound": {
			annotations: short{"mode": "Auto", "load": "150%", "keys": "rack"}, want: parsed{Keys: rack, MaxLoad: 150},
		},
		"a bound gives way to Local": {
			annotations: short{"load": "120%"}, distribution: PreferSameZone, local: true,
			want: parsed{ByHints: byDistribution, Ignored: ignoredOf("vicinity.dev/max-load " + LocalConflict + "; " + LocalRemedy)},
		},
		"so does balanced": {
			annotations: short{"mode": ModeBalanced}, local: true,
			want: parsed{Ignored: ignoredOf("service.kubernetes.io/topology-mode " + LocalConflict + "; " + LocalRemedy)},
		},
		"balanced gives way to the deprecated annotation": {
			annotations: short{"mode": ModeBalanced, "hints": "Auto", "keys": "rack"},
			want:        parsed{Keys: rack, Ignored: ignoredOf("service.kubernetes.io/topology-mode " + BalancedConflict)},
		},
		"a mode of ours that is none is told, and the rest obeyed": {
			annotations: short{"mode": "vicinity.dev/ballanced", "keys": "rack", "load": "150%"},
			want: parsed{Keys: rack, MaxLoad: 150, Ignored: ignoredOf(`service.kubernetes.io/topology-mode "vicinity.dev/ballanced" is no mode ` +
				`of ours; ` +
				`did you mean "vicinity.dev/balanced"?`)},
		},
		"in upper case it is none": {
			annotations: short{"mode": " Vicinity.dev/Balanced"},
			want: parsed{Ignored: ignoredOf(`service.kubernetes.io/topology-mode " Vicinity.dev/Balanced" is not a mode of vicinity.dev; ` +
				`did you mean "vicinity.dev/balanced"?`)},
		},
		"one that nobody could mean": {
			annotations: short{"mode": "vicinity.dev/x"},
			want: parsed{Ignored: ignoredOf(`service.kubernetes.io/topology-mode "vicinity.dev/x" is not a mode of vicinity.dev; ` +
				`the only one is "vicinity.dev/balanced"`)},
		},
		"others' modes are theirs": {annotations: short{"mode": "example.com/balanced"}, want: parsed{}},
		"clients that cannot be read leave the bound": {
			annotations: short{"mode": ModeBalanced, "clients": "frontend"},
			want: parsed{Keys: zone, MaxLoad: 120,
				Ignored: ignoredOf(`vicinity.dev/clients entry 1 "frontend" lacks the namespace of the Service; ` +
					`did you mean "shop/frontend"?`)},
		},
		"clients without a bound mean nothing": {
			annotations: short{"keys": "rack", "clients": "a/b"},
			want:        parsed{Keys: rack, Ignored: ignoredOf("vicinity.dev/clients " + ClientsNeedBound)},
		},
		"measured or not": {
			annotations: short{"keys": "rack", "clients": "a/b"}, measured: true,
			want: parsed{Keys: rack, Ignored: ignoredOf("vicinity.dev/clients " + ClientsNeedBound)},
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

// TestLawsOfBounds: for any input, a bound is in its range and has keys, and clients have a bound. A Service that
// requests a bound has one, or a reason why not. An invalid bound does not disable the keys.
func TestLawsOfBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	put := func(annotations map[string]string, key string, values ...string) {
		if random.IntN(2) == 0 {
			annotations[key] = values[random.IntN(len(values))]
		}
	}
	bounded := 0
	for range 50_000 {
		annotations := map[string]string{}
		put(annotations, TopologyKeysAnnotation, "rack", "rack, *", "*", "a b", "")
		put(annotations, MaxLoadAnnotation, "120%", "1000%", "1.2", "")
		put(annotations, ClientsAnnotation, "a/b", "b", "", "measured", "a/b, measured")
		put(annotations, DemandSourceAnnotation, "measured", "measured", "Measured", "")
		put(annotations, TopologyModeAnnotation, ModeBalanced, "Auto", "Disabled", "vicinity.dev/x")
		put(annotations, TopologyAwareHintsAnnotation, ModeBalanced, "Auto", "x")
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
			t.Fatalf("nobody says why there is no bound: Parse(%+v) = %+v", input, got)
		}
		if _, hasClients := annotations[ClientsAnnotation]; hasClients && len(got.Clients) == 0 && len(got.Ignored) == 0 {
			t.Fatalf("nobody says why there are no clients: Parse(%+v) = %+v", input, got)
		}
		if _, hasSource := annotations[DemandSourceAnnotation]; hasSource && !got.Measured && len(got.Ignored) == 0 {
			t.Fatalf("nobody says why demand is not measured: Parse(%+v) = %+v", input, got)
		}
		if annotations[MaxLoadAnnotation] != "1.2" {
			continue
		}
		annotations[MaxLoadAnnotation] = FormatMaxLoad(input.defaultMaxLoad())
		read := parse(input)
		if diff := cmp.Diff(read.Keys, got.Keys); diff != "" || read.MaxLoad != got.MaxLoad || !anyContains(got.Ignored, ";") {
			t.Fatalf("a bound that cannot be read is not the usual one: %+v, %+v", read, got)
		}
	}
	if bounded < 5000 {
		t.Errorf("%d have a bound: the test has tested little", bounded)
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
