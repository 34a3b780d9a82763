package policy

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMaxLoad(t *testing.T) {
	for value, want := range map[string]uint64{"100%": 100, "120%": 120, "1000%": 1000} {
		if got, err := ParseMaxLoad(value); got != want || err != nil {
			t.Errorf("%q: got %d, %v", value, got, err)
		}
	}
	for value, meant := range map[string]string{
		"1.2": `did you mean "120%"?`, "1,25": `did you mean "125%"?`, "120": `did you mean "120%"?`, "120 %": `did you mean "120%"?`,
		"1.2x": `did you mean "120%"?`, "2": `did you mean "200%"?`, "0120%": `did you mean "120%"?`, " 120%": `did you mean "120%"?`,
		"99%": `such as "120%"`, "1001%": `such as "120%"`, "": `such as "120%"`, "a lot": `such as "120%"`, "-120%": `such as "120%"`,
		"+120%": `such as "120%"`, "1e3%": `such as "120%"`, "120%%": `such as "120%"`, "99999999999999999999%": `such as "120%"`,
	} {
		if got, err := ParseMaxLoad(value); got != 0 || err == nil || !strings.HasSuffix(err.Error(), meant) {
			t.Errorf("%q: got %d, %v; want an error that ends in %s", value, got, err, meant)
		}
	}
}

func TestParseClients(t *testing.T) {
	got, err := ParseClients(" ingress/nginx,shop/frontend ", "shop/web")
	if diff := cmp.Diff([]string{"ingress/nginx", "shop/frontend"}, got); diff != "" || err != nil {
		t.Errorf("%v; clients (-want +got):\n%s", err, diff)
	}
	for value, want := range map[string]string{
		"":                                  `entry 1 "" is empty; name a Service as namespace/name, or remove the extra comma`,
		"a/b,":                              `entry 2 "" is empty; name a Service as namespace/name, or remove the extra comma`,
		"frontend":                          `entry 1 "frontend" has no namespace; write "shop/frontend" if the Service is in this one`,
		"shop/web":                          `entry 1 "shop/web" is this Service itself; name those that dial it`,
		"a/b, a/b":                          `entry 2 "a/b" is named twice; name each client once`,
		"a/b/c":                             `entry 1 "a/b/c" is not the namespace and name of a Service`,
		"A/b":                               `entry 1 "A/b" is not the namespace and name of a Service`,
		"a/1,a/2,a/3,a/4,a/5,a/6,a/7,a/8,,": `10 clients are named, and at most 8 are allowed; name those that ask most`,
	} {
		if got, err := ParseClients(value, "shop/web"); got != nil || err == nil || err.Error() != want {
			t.Errorf("%q: got %v, %v; want %s", value, got, err, want)
		}
	}
}

func TestParseABound(t *testing.T) {
	keys := func(list string) map[string]string { return map[string]string{TopologyKeysAnnotation: list} }
	with := func(annotations map[string]string, more ...string) map[string]string {
		all := maps.Clone(annotations)
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	hundred := map[string]string{MaxLoadAnnotation: "100%"}
	balanced := map[string]string{TopologyModeAnnotation: ModeBalanced}
	zoneFirst, nodeFirst := []Key{Zone, AnyNode}, []Key{Hostname, Zone, AnyNode}
	tests := map[string]struct {
		annotations  map[string]string
		distribution string
		local        bool
		cluster      uint64 // its default
		want         Topology
		ignored      string // how the reason begins
	}{
		"on topology keys": {
			annotations: with(keys("a.b/c, *"), MaxLoadAnnotation, "150%"), want: Topology{Keys: []Key{"a.b/c", AnyNode}, MaxLoad: 150},
		},
		"on PreferSameZone": {annotations: hundred, distribution: PreferSameZone, want: Topology{Keys: zoneFirst, MaxLoad: 100}},
		"on PreferClose":    {annotations: hundred, distribution: PreferClose, want: Topology{Keys: zoneFirst, MaxLoad: 100}},
		"on PreferSameNode": {annotations: hundred, distribution: PreferSameNode, want: Topology{Keys: nodeFirst, MaxLoad: 100}},
		"the short form":    {annotations: balanced, want: Topology{Keys: zoneFirst, MaxLoad: 120}},
		"the short form, with a bound": {
			annotations: with(balanced, MaxLoadAnnotation, "140%"), want: Topology{Keys: zoneFirst, MaxLoad: 140},
		},
		"the short form, on keys": {
			annotations: with(balanced, TopologyKeysAnnotation, "a.b/c"), want: Topology{Keys: []Key{"a.b/c"}, MaxLoad: 120},
		},
		"the short form, on PreferSameNode": {
			annotations: balanced, distribution: PreferSameNode, want: Topology{Keys: nodeFirst, MaxLoad: 120},
		},
		"clients": {
			annotations: with(balanced, ClientsAnnotation, "shop/front"),
			want:        Topology{Keys: zoneFirst, MaxLoad: 120, Clients: []string{"shop/front"}},
		},
		"instead of a malformed bound the usual one": {
			annotations: with(keys("a.b/c"), MaxLoadAnnotation, "1.5"), want: Topology{Keys: []Key{"a.b/c"}, MaxLoad: 120},
			ignored: `"1.5" is no bound`,
		},
		"a malformed bound on nothing": {annotations: map[string]string{MaxLoadAnnotation: "1.5"}, ignored: `"1.5" is no bound`},
		"the cluster's, on keys":       {annotations: keys("a.b/c"), cluster: 150, want: Topology{Keys: []Key{"a.b/c"}, MaxLoad: 150}},
		"the cluster's, on trafficDistribution": {
			distribution: PreferClose, cluster: 150, want: Topology{Keys: zoneFirst, MaxLoad: 150},
		},
		"the cluster's, for the short form": {annotations: balanced, cluster: 150, want: Topology{Keys: zoneFirst, MaxLoad: 150}},
		"the cluster's gives way to the owner's": {
			annotations: with(balanced, MaxLoadAnnotation, "300%"), cluster: 150, want: Topology{Keys: zoneFirst, MaxLoad: 300},
		},
		"the cluster's is for those who prefer": {cluster: 150},
		"the cluster's is not for Auto": {
			annotations: map[string]string{TopologyModeAnnotation: ModeAuto}, distribution: PreferClose, cluster: 150,
		},
		"the cluster's is not for Local": {distribution: PreferClose, local: true, cluster: 150},
		"on nothing":                     {annotations: hundred, ignored: "nothing says which endpoints are near"},
		"on keys that are ignored": {
			annotations: with(keys("*, *"), MaxLoadAnnotation, "120%"), distribution: PreferClose, ignored: "the topology keys that it bounds",
		},
		"on * alone": {
			annotations: with(keys("*"), MaxLoadAnnotation, "120%"), want: Topology{Keys: []Key{AnyNode}}, ignored: "the only topology key is *",
		},
		"beside Local": {annotations: balanced, local: true, ignored: "a bound may not be used with externalTrafficPolicy"},
		"beside Auto": {
			annotations: with(keys("a.b/c"), MaxLoadAnnotation, "120%", TopologyModeAnnotation, ModeAuto), want: Topology{Keys: []Key{"a.b/c"}},
			ignored: "a bound may not be used with service.kubernetes.io/topology-mode: Auto",
		},
		"clients without a bound": {
			annotations: with(keys("a.b/c"), ClientsAnnotation, "a/b"), want: Topology{Keys: []Key{"a.b/c"}},
			ignored: "clients are what a bound reckons with",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Parse(Words{
				Service: "shop/web", Annotations: test.annotations, TrafficDistribution: test.distribution, ExternalTrafficLocal: test.local,
				DefaultMaxLoad: test.cluster,
			})
			reason := ""
			if last := len(got.Ignored) - 1; last >= 0 {
				reason = got.Ignored[last].Reason
			}
			if !strings.HasPrefix(reason, test.ignored) || (reason == "") != (test.ignored == "") {
				t.Errorf("ignored because %q, want %q", reason, test.ignored)
			}
			got.Ignored = nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("topology (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzBound(f *testing.F) {
	f.Add("120%", "a/b, c/d", "zone", ModeBalanced)
	f.Fuzz(func(t *testing.T, maxLoad, clients, keys, mode string) {
		got := Parse(Words{Service: "a/a", Annotations: map[string]string{
			MaxLoadAnnotation: maxLoad, ClientsAnnotation: clients, TopologyKeysAnnotation: keys, TopologyModeAnnotation: mode,
		}})
		if got.MaxLoad > 0 && (len(got.Keys) == 0 || got.MaxLoad < LeastMaxLoad || got.MaxLoad > MostMaxLoad) {
			t.Errorf("got %+v", got)
		}
		if got.MaxLoad == 0 && len(got.Clients) > 0 || len(got.Clients) > MaxClients {
			t.Errorf("got %+v", got)
		}
	})
}
