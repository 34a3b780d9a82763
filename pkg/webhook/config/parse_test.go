package config

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// header is lines 1 and 2 of a file.
const header = "apiVersion: vicinity.dev/v1alpha1\nkind: TopologyAdmissionConfiguration\n"

func TestParse(t *testing.T) {
	system := []string{"kube-system"}
	for name, c := range map[string]struct {
		text string
		want rules.Settings
	}{
		"nothing": {"", rules.Settings{ExcludedNamespaces: system}},
		"fields without a value": {
			"rules:\ndefaults:\nexcludedNamespaces:\nproxyName:\nstrict:\n", rules.Settings{ExcludedNamespaces: system},
		},
		"an empty second document": {"---\n# nothing\n", rules.Settings{ExcludedNamespaces: system}},
		"strict":                   {"strict: true\n", rules.Settings{Strict: true, ExcludedNamespaces: system}},
		"rules, with off unquoted": {
			"rules: {SVC027: off, SVC001: warn, NS001: 'deny'}\n",
			rules.Settings{Actions: map[rules.ID]rules.Action{
				"SVC027": rules.Off, "SVC001": rules.Warn, "NS001": rules.Deny,
			}, ExcludedNamespaces: system},
		},
		"a default mode": {
			"defaults: {topologyMode: Auto}\n",
			rules.Settings{Default: &rules.Default{Setting: rules.TopologyMode, Value: "Auto"}, ExcludedNamespaces: system},
		},
		"a default distribution and its conditions": {
			"defaults:\n  trafficDistribution: PreferSameNode\n  onUpdate: true\n  withSessionAffinity: true\n",
			rules.Settings{
				Default:         &rules.Default{Setting: rules.TrafficDistribution, Value: "PreferSameNode"},
				DefaultOnUpdate: true, DefaultWithAffinity: true, ExcludedNamespaces: system,
			},
		},
		"default keys": {
			`defaults: {topologyKeys: "rack, *"}`,
			rules.Settings{Default: &rules.Default{Setting: rules.TopologyKeys, Value: "rack, *"}, ExcludedNamespaces: system},
		},
		"other excluded Namespaces": {"excludedNamespaces: [a, b]\n", rules.Settings{ExcludedNamespaces: []string{"a", "b"}}},
		"no excluded Namespaces":    {"excludedNamespaces: []\n", rules.Settings{}},
		"DNS by topology":           {"dnsByTopology: true\n", rules.Settings{DNSByTopology: true, ExcludedNamespaces: system}},
		"a proxy name":              {"proxyName: vicinity\n", rules.Settings{ProxyName: "vicinity", ExcludedNamespaces: system}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse("config.yaml", []byte(header+c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseJSON(t *testing.T) {
	got, err := Parse("config.json", []byte(`{"kind": "TopologyAdmissionConfiguration", "apiVersion": "vicinity.dev/v1alpha1",
		"strict": true}`))
	if err != nil || !got.Strict {
		t.Errorf("settings %v, error %v", got, err)
	}
}

func TestParseReportsLineAndField(t *testing.T) {
	for name, c := range map[string]struct {
		text string // below the header, from line 3
		want []string
	}{
		"an unknown rule": {
			"rules:\n  SVC001: warn\n  SCV027: off\n",
			[]string{`5: rules.SCV027: Unsupported value: "SCV027": there is no such rule; did you mean SVC027?`},
		},
		"an unknown rule without a suggestion": {
			"rules: {nothing: off}\n",
			[]string{`3: rules.nothing: Unsupported value: "nothing": there is no such rule`},
		},
		"a rule in lower case": {
			"rules: {svc027: off}\n",
			[]string{`3: rules.svc027: Unsupported value: "svc027": there is no such rule; did you mean SVC027?`},
		},
		"a rule that the webhook does not have": {
			"rules: {EPS001: off}\n",
			[]string{`3: rules.EPS001: Unsupported value: "EPS001": the webhook does not review EndpointSlices; ` +
				`configure this rule in its policy in manifests/webhook-cel`},
		},
		"an invalid action": {
			"rules:\n  SVC027: Warn\n",
			[]string{`4: rules.SVC027: Unsupported value: "Warn": must be one of: deny, warn, off; did you mean warn?`},
		},
		"an action that YAML reads as true": {
			"rules: {SVC027: on}\n",
			[]string{`3: rules.SVC027: Unsupported value: "": must be one of: deny, warn, off`},
		},
		"no action": {
			"rules:\n  SVC027:\n", []string{`4: rules.SVC027: Unsupported value: "": must be one of: deny, warn, off`},
		},
		"an action that is a list": {
			"rules:\n  SVC027: [off]\n", []string{`4: rules.SVC027: Unsupported value: "": must be one of: deny, warn, off`},
		},
		"rules that are a list": {"rules: [SVC027]\n", []string{`3: rules: must be an object, not array`}},
		"a rule set twice": {
			"rules:\n  SVC027: off\n  SVC027: warn\n", []string{`5: rules.SVC027: duplicate field`},
		},
		"an unknown field": {"defaultz: {}\n", []string{`3: defaultz: unknown field; did you mean defaults?`}},
		"an unknown field below": {
			"defaults:\n  trafficDistributoin: PreferSameZone\n",
			[]string{`4: defaults.trafficDistributoin: unknown field; did you mean defaults.trafficDistribution?`},
		},
		"a field in another case": {
			"defaults: {topologymode: Auto}\n", []string{`3: defaults.topologymode: unknown field; did you mean defaults.topologyMode?`},
		},
		"a field in the wrong place": {
			"topologyMode: Auto\n", []string{`3: topologyMode: unknown field`},
		},
		"an unknown field without a suggestion": {"metadata: {name: x}\n", []string{`3: metadata: unknown field`}},
		"a field set twice":                     {"strict: true\n\nstrict: true\n", []string{`5: strict: duplicate field`}},
		"two defaults": {
			"defaults:\n  topologyMode: Auto\n  topologyKeys: \"*\"\n",
			[]string{`5: defaults.topologyKeys: Forbidden: only one default is allowed, and defaults.topologyMode is set`},
		},
		"an invalid mode": {
			"defaults: {topologyMode: auto}\n",
			[]string{`3: defaults.topologyMode: Unsupported value: "auto": must be one of: Auto, Disabled, vicinity.dev/balanced; ` +
				`did you mean Auto?`},
		},
		"a mode that is for Namespaces": {
			"defaults: {topologyMode: None}\n",
			[]string{`3: defaults.topologyMode: Unsupported value: "None": must be one of: Auto, Disabled`},
		},
		"an invalid distribution": {
			"defaults: {trafficDistribution: PreferZone}\n",
			[]string{`3: defaults.trafficDistribution: Unsupported value: "PreferZone": must be one of: PreferSameZone, PreferSameNode`},
		},
		"invalid keys": {
			"defaults:\n  topologyKeys: \"*, a b\"\n",
			[]string{`4: defaults.topologyKeys: Invalid value: "*, a b": entry 1 "*" matches every endpoint, so the keys after it would never be ` +
				`tried; move it to the end. entry 2 "a b" is not a label key: `},
		},
		"keys that are None": {
			"defaults: {topologyKeys: None}\n", []string{`3: defaults.topologyKeys: Invalid value: "None": None is not a list of keys`},
		},
		"keys as a list": {
			"defaults: {topologyKeys: [a]}\n", []string{`3: defaults.topologyKeys: must be string, not array`},
		},
		"defaults that are a string": {"defaults: Auto\n", []string{`3: defaults: must be an object, not string`}},
		"an invalid bool":            {"strict: maybe\n", []string{`3: strict: must be bool, not string`}},
		"a string for a bool": {
			"defaults: {onUpdate: 'true'}\n", []string{`3: defaults.onUpdate: must be bool, not string`},
		},
		"a string for a list of Namespaces": {
			"excludedNamespaces: kube-system\n", []string{`3: excludedNamespaces: must be []string, not string`},
		},
		"an invalid name of a Namespace": {
			"excludedNamespaces:\n  - kube-system\n  - Kube_System\n",
			[]string{`5: excludedNamespaces[1]: Invalid value: "Kube_System": a lowercase RFC 1123 label must consist of`},
		},
		"a number among Namespaces": {"excludedNamespaces: [1]\n", []string{`3: excludedNamespaces: must be string, not number`}},
		"an invalid label value":    {"proxyName: a b\n", []string{`3: proxyName: Invalid value: "a b": a valid label must be`}},
		"several mistakes, in the order of their lines": {
			"rules: {SVC999: off}\nproxyname: x\nproxyName: []\n",
			[]string{`3: rules.SVC999: Unsupported value: "SVC999": there is no such rule`, `5: proxyName: must be string`},
		},
		"several fields, in the order of their lines": {
			"rules: {SVC999: off}\nproxyname: x\nstrictt: true\n",
			[]string{
				`3: rules.SVC999: Unsupported`, `4: proxyname: unknown field; did you mean proxyName?`,
				`5: strictt: unknown field; did you mean strict?`,
			},
		},
		"a second document": {"---\n" + header, []string{`4: a second document; only one is allowed`}},
		"invalid YAML":      {"rules: {\n", []string{`4: invalid YAML: did not find expected node content`}},
		"an unclosed mapping": {
			"rules: {SVC001: off\nproxyName: a\n", []string{`4: invalid YAML: did not find expected ',' or '}'`},
		},
		"a field with too little indentation": {
			"rules:\n  SVC001: off\n SVC002: off\n", []string{`5: invalid YAML: did not find expected key`},
		},
		"a field with too much indentation": {
			"rules:\n  SVC001: off\n   SVC002: off\n", []string{`5: invalid YAML: mapping values are not allowed in this context`},
		},
		"a tab": {"rules:\n\tSVC001: off\n", []string{`4: invalid YAML: found character that cannot start any token`}},
		"an unprintable field name": {
			"\"a\\nb\\u0007\": 1\n", []string{`3: a\nb\a: unknown field`},
		},
	} {
		t.Run(name, func(t *testing.T) { expectRejected(t, header+c.text, c.want) })
	}
}

// expectRejected expects one error line for each mistake, each with the given beginning after the file's name.
func expectRejected(t *testing.T, text string, want []string) {
	t.Helper()
	got, err := Parse("config.yaml", []byte(text))
	if err == nil || got != nil {
		t.Fatalf("settings %v, error %v", got, err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("the error has %d lines, want %d:\n%v", len(lines), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], "config.yaml:"+want[i]) {
			t.Errorf("line %d of the error\ngot  %s\nwant config.yaml:%s...", i+1, lines[i], want[i])
		}
	}
}

func TestParseRejectsOtherDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":       {"", []string{`1: the file is empty`}},
		"only comments": {"# nothing\n", []string{`1: the file is empty`}},
		"a list":        {"- a\n", []string{`1: got apiVersion "", kind ""; `}},
		"a ConfigMap": {
			"apiVersion: v1\nkind: ConfigMap\ndata: {}\n",
			[]string{`2: kind: this is a ConfigMap; use the text under its key config.yaml, as in a pod that mounts it`},
		},
		"another version": {
			"kind: TopologyAdmissionConfiguration\napiVersion: vicinity.dev/v1\nstrict: maybe\n",
			[]string{`1: got apiVersion "vicinity.dev/v1", kind "TopologyAdmissionConfiguration"; want apiVersion ` +
				`"vicinity.dev/v1alpha1", kind "TopologyAdmissionConfiguration"`},
		},
		"no version and no kind": {
			"strict: true\n", []string{`1: got apiVersion "", kind ""; `},
		},
		"a kind set twice": {
			header + "kind: TopologyAdmissionConfiguration\n", []string{`3: kind: duplicate field`},
		},
	} {
		t.Run(name, func(t *testing.T) { expectRejected(t, c.text, c.want) })
	}
}

func TestExampleHasDefaultsAndEveryField(t *testing.T) {
	text, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("example.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("settings (-default +example):\n%s", diff)
	}
	for _, fields := range []reflect.Type{reflect.TypeFor[document](), reflect.TypeFor[defaults]()} {
		for field := range fields.Fields() {
			if name := field.Tag.Get("json"); !strings.Contains(string(text), name+":") {
				t.Errorf("the example lacks %s", name)
			}
		}
	}
}

func TestCommentsInExampleAreValid(t *testing.T) {
	text, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for commented, written := range map[string]string{
		"  # trafficDistribution: ": "  trafficDistribution: ",
		"  # topologyMode: ":        "  topologyMode: ",
		"  # topologyKeys: ":        "  topologyKeys: ",
		"rules: {}\n#  SVC027: off  # topology keys without \"*\"\n#": "rules:\n  SVC027: off\n",
	} {
		changed := strings.ReplaceAll(string(text), commented, written)
		if changed == string(text) {
			t.Errorf("the example lacks %q", commented)
			continue
		}
		got, err := Parse("example.yaml", []byte(changed))
		if err != nil || cmp.Equal(Default(), got) {
			t.Errorf("with %q: settings %v, error %v", written, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte(header + "rules: {SVC027: off}\ndefaults: {topologyKeys: 'a,*'}\n"))
	f.Add([]byte(header + "a: &a [*a]\n"))
	f.Add([]byte("---\n---\n? {a: b}\n: c\n<<: *x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		settings, err := Parse("config.yaml", text)
		if (settings == nil) == (err == nil) {
			t.Fatalf("settings %v, error %v", settings, err)
		}
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "config.yaml:") {
					t.Errorf("an error line has no position: %q", line)
				}
			}
			return
		}
		if settings.Default != nil && settings.Default.Check() != nil {
			t.Errorf("an invalid default was accepted: %v", settings.Default)
		}
		for id := range settings.Actions {
			if _, exists := rules.RuleOf(id); !exists {
				t.Errorf("rule %s does not exist", id)
			}
		}
	})
}
