package ruleset_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// detectors are all ways to recognize pods, each with the IPv4 matches that its chains begin with.
var detectors = map[string]struct {
	traffic ruleset.LocalTraffic
	outside string
}{
	"by prefix":               {pods, "ip saddr != 10.244.0.0/16 fib saddr type != local "},
	"by the other family's":   {ruleset.LocalTraffic{Prefixes: prefixes("fd00:244::/32")}, "fib saddr type != local "},
	"by bridge":               {ruleset.LocalTraffic{Interface: "cbr0"}, `iif != 0 iifname != "cbr0" fib saddr type != local `},
	"by prefix of interfaces": {ruleset.LocalTraffic{InterfacePrefix: "veth"}, `iif != 0 iifname != "veth*" fib saddr type != local `},
	"not at all":              {ruleset.LocalTraffic{}, "fib saddr type != local "},
}

// TestRandomSlotChains: the dispatch map leads to these chains by name, and they only pick a slot.
func TestRandomSlotChains(t *testing.T) {
	const pick3 = "meta priority set numgen random mod 3 offset 4244635648"
	const pickLocal2 = "meta priority set numgen random mod 2 offset 4227858432"
	for detector, settings := range detectors {
		for name, test := range map[string]struct {
			class ruleset.Class
			chain string
			rules []string
		}{
			"all endpoints for all clients": {ruleset.BalanceClass(3), "lb-3", []string{pick3}},
			"split":                         {ruleset.SplitClass(2, 3), "lb-3-local-2", []string{settings.outside + pickLocal2 + " return", pick3}},
			"split, no local slot: external clients are dropped": {
				ruleset.SplitClass(0, 3), "lb-3-local-0", []string{settings.outside + "drop", pick3},
			},
			"split, only local slots: internal clients are refused": {
				ruleset.SplitClass(2, 0), "lb-0-local-2", []string{settings.outside + pickLocal2 + " return", "goto refuse"},
			},
			"split, no slots: external clients are dropped, internal ones refused": {
				ruleset.SplitClass(0, 0), "lb-0-local-0", []string{settings.outside + "drop", "goto refuse"},
			},
		} {
			t.Run(name+", pods detected "+detector, func(t *testing.T) {
				chain := ruleset.RandomSlotChain(model.IPv4, ruleset.Config{LocalTraffic: settings.traffic}, test.class)
				want := "\tchain " + test.chain + " {\n\t\t" + strings.Join(test.rules, "\n\t\t") + "\n\t}\n"
				if diff := cmp.Diff(want, chain.Text(model.IPv4)); diff != "" {
					t.Errorf("chain (-want +got):\n%s", diff)
				}
				if wantVerdict := (ruleset.Verdict{Kind: ruleset.Jump, Chain: test.chain}); ruleset.DispatchOf(test.class) != wantVerdict {
					t.Errorf("the class is dispatched by %+v, want %+v", ruleset.DispatchOf(test.class), wantVerdict)
				}
			})
		}
	}
}

func TestClassesDispatchedWithoutOwnChain(t *testing.T) {
	for name, test := range map[string]struct {
		class ruleset.Class
		want  ruleset.Verdict
	}{
		"refuse": {ruleset.RefuseClass, ruleset.Verdict{Kind: ruleset.Goto, Chain: "refuse"}},
		"drop":   {ruleset.DropClass, ruleset.Verdict{Kind: ruleset.Drop}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ruleset.DispatchOf(test.class); got != test.want {
				t.Errorf("dispatched by %+v, want %+v", got, test.want)
			}
			port := withClass(portOf("web", "10.96.0.1"), test.class)
			if chains := port.Chains(bothFamilies); chains != nil {
				t.Errorf("the port has chains: %v", chains)
			}
		})
	}
}

// TestACommonNumberOfEndpointsAddsNoVerdict, and removes none: the kernel would check all verdicts that other Services
// have added.
func TestACommonNumberOfEndpointsAddsNoVerdict(t *testing.T) {
	const beyond = ruleset.PreallocatedSlots + 1
	web := func(count int) ruleset.Service { return serviceOf(portOf("web", "10.96.0.1", many(count)...)) }
	r := start(t, web(0))
	before := 0
	for _, count := range append(numbersUpTo(beyond), 0, beyond, 1) {
		lines := planned(r.change(t, web(count)))
		lines = append(lines, r.cleanUp(t)...)
		changesVerdict := slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, "dispatch") || strings.Contains(line, "chain")
		})
		if changesVerdict != (count == beyond || before == beyond) {
			t.Errorf("from %d to %d endpoints a verdict is added or deleted: %v, by %q", before, count, changesVerdict, lines)
		}
		before = count
	}
	kept := withClass(portOf("web", "10.96.0.1"), ruleset.DropClass)
	for _, service := range []ruleset.Service{serviceOf(kept), emptyService("web")} {
		if lines := append(planned(r.change(t, service)), r.cleanUp(t)...); strings.Contains(strings.Join(lines, "\n"), "dispatch") {
			t.Errorf("a Service that drops or is deleted changes a verdict: %q", lines)
		}
	}
}
