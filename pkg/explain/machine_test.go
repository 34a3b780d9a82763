package explain_test

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/explain"
)

var writers = map[string]func(io.Writer, []explain.Port) error{
	"text": explain.Text,
	"json": explain.JSON,
	"yaml": explain.YAML,
}

func TestJSONHasTheFieldsThatScriptsRead(t *testing.T) {
	tests := map[string]struct {
		port explain.Port
		want []string
	}{
		"a port with everything": {topologyPort(), []string{
			"affinitySeconds", "cluster", "excluded", "family", "frontends", "local", "message", "node", "number", "outcome", "port",
			"protocol", "service", "warnings",
		}},
		"a port with only what every port has": {emptyPort(), []string{
			"cluster", "excluded", "family", "frontends", "message", "number", "outcome", "port", "protocol", "service",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			list := decode(t, []explain.Port{test.port})
			if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(list[0]))); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			choice := list[0]["cluster"].(map[string]any)
			want := []string{"endpoints", "message", "reason", "tier"}
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(choice))); diff != "" {
				t.Errorf("fields of cluster (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJSONListsAreNeverNull(t *testing.T) {
	empty := decode(t, []explain.Port{{}})[0]
	for _, field := range []string{"frontends", "excluded"} {
		if _, ok := empty[field].([]any); !ok {
			t.Errorf("%s is %v, want a list", field, empty[field])
		}
	}
	if _, ok := empty["cluster"].(map[string]any)["endpoints"].([]any); !ok {
		t.Errorf("cluster is %v, want a list of endpoints in it", empty["cluster"])
	}
}

func TestMachineFormatsOfNothingAreAnEmptyList(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		var got strings.Builder
		if err := writers[format](&got, nil); err != nil {
			t.Fatal(err)
		}
		if got.String() != "[]\n" {
			t.Errorf("%s of nothing is %q, want %q", format, got.String(), "[]\n")
		}
	}
}

func TestYAMLSaysTheSameAsJSON(t *testing.T) {
	ports := []explain.Port{topologyPort(), emptyPort()}
	var text strings.Builder
	if err := explain.YAML(&text, ports); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := yaml.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, ports), got); diff != "" {
		t.Errorf("JSON and YAML differ (-JSON +YAML):\n%s", diff)
	}
}

func TestSentencesAreNotEscapedInJSON(t *testing.T) {
	port := emptyPort()
	port.Message = `zone <unknown> & "all"`
	var text strings.Builder
	if err := explain.JSON(&text, []explain.Port{port}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), `zone <unknown> & \"all\"`) {
		t.Errorf("the sentence is escaped:\n%s", text.String())
	}
}

func decode(t *testing.T, ports []explain.Port) []map[string]any {
	t.Helper()
	var text strings.Builder
	if err := explain.JSON(&text, ports); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(text.String()), &list); err != nil {
		t.Fatal(err)
	}
	return list
}
