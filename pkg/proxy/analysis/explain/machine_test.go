package explain_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/hostile"
)

var writers = map[string]func(io.Writer, []explain.PortReport) error{
	"text": write("text"), "json": write("json"), "yaml": write("yaml"),
}

// write returns a function that writes ports in a format, those of one node after those of another.
func write(format string) func(io.Writer, []explain.PortReport) error {
	return func(w io.Writer, ports []explain.PortReport) error {
		stream, half := explain.NewStream(w, format), len(ports)/2
		if err := errors.Join(stream.Write(ports[:half]), stream.Write(ports[half:])); err != nil {
			return err
		}
		return stream.Close()
	}
}

func TestJSONHasTheFieldsThatScriptsRead(t *testing.T) {
	tests := map[string]struct {
		port explain.PortReport
		want []string
	}{
		"a port with everything": {fullPort(), []string{
			"affinitySeconds", "allowedSources", "cluster", "excluded", "family", "frontends", "healthCheck", "local", "lost", "message",
			"node", "number", "outcome", "port", "protocol", "service", "traffic", "warnings",
		}},
		"a port with only what every port has": {emptyPort(), []string{
			"cluster", "excluded", "family", "frontends", "message", "number", "outcome", "port", "protocol", "service", "traffic",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			list := decode(t, []explain.PortReport{test.port})
			if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(list[0]))); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJSONObjectsInAPortHaveTheFieldsThatScriptsRead(t *testing.T) {
	port := decode(t, []explain.PortReport{fullPort()})[0]
	first := func(field string) any { return port[field].([]any)[0] }
	last := func(field string) any { list := port[field].([]any); return list[len(list)-1] }
	tests := map[string]struct {
		object any
		want   []string
	}{
		"a frontend":               {first("frontends"), []string{"address", "kind"}},
		"a lost frontend":          {first("lost"), []string{"address", "kind", "message", "owner", "reason"}},
		"traffic to the ClusterIP": {first("traffic"), []string{"choice", "from", "frontends", "message", "outcome", "to"}},
		"external traffic":         {last("traffic"), []string{"choice", "from", "frontends", "message", "outcome", "source", "to"}},
		"a choice":                 {port["cluster"], []string{"endpoints", "message", "reason", "shares", "slots", "tier"}},
		"an excluded endpoint":     {first("excluded"), []string{"endpoint", "message", "reason"}},
		"a health check":           {port["healthCheck"], []string{"localEndpoints", "nodePort"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(test.object.(map[string]any)))); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

// TestJSONListsAreNeverNull: scripts could not iterate over null. The ports are one without endpoints, one whose
// frontends another Service owns, one of a headless Service, and an address that leads to no Service port.
func TestJSONListsAreNeverNull(t *testing.T) {
	lost, headless := web(), web()
	lost.Name.Name, headless.Name.Name = "web-2", "web-3"
	headless.ClusterIPs, headless.IsHeadless = nil, true
	cluster := clusterOf(webSlice(), web(), lost, headless)
	ports := explain.Clients{}.Ports(cluster, explain.Query{})
	dialled, _ := explain.ParseFrontend("10.96.0.10:81")
	ports = append(ports, explain.Clients{}.Ports(cluster, dialled)...)
	var text strings.Builder
	if err := write("json")(&text, ports); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]int{": null": 0, `"traffic": []`: 5, `"frontends": []`: 6, `"excluded": []`: 7,
		`"endpoints": []`: 7} {
		if got := strings.Count(text.String(), pattern); got != want {
			t.Errorf("%s occurs %d times, want %d:\n%s", pattern, got, want, text.String())
		}
	}
}

func TestMachineFormatsOfNothingAreAnEmptyList(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		var got strings.Builder
		if err := writers[format](&got, nil); err != nil {
			t.Fatal(err)
		}
		if got.String() != "[]\n" {
			t.Errorf("%s without ports is %q, want %q", format, got.String(), "[]\n")
		}
	}
}

func TestYAMLIsTheSameAsJSON(t *testing.T) {
	ports := []explain.PortReport{fullPort(), emptyPort()}
	var text strings.Builder
	if err := write("yaml")(&text, ports); err != nil {
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
	if err := write("json")(&text, []explain.PortReport{port}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), `zone <unknown> & \"all\"`) {
		t.Errorf("the sentence is escaped:\n%s", text.String())
	}
}

func decode(t *testing.T, ports []explain.PortReport) []map[string]any {
	t.Helper()
	var text strings.Builder
	if err := write("json")(&text, ports); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(text.String()), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEscapedOutputIsDecodedUnchanged: control characters are escaped in the output, and decoding restores them.
func TestEscapedOutputIsDecodedUnchanged(t *testing.T) {
	for _, text := range []string{hostile.Text, "a\u202eb", "a\u2028b", "a\u009bb", "plain"} {
		for _, format := range []string{"json", "yaml"} {
			var page strings.Builder
			if err := explain.Print(&page, format, map[string]string{text: text}); err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			if err := yaml.Unmarshal([]byte(page.String()), &got); err != nil || got[text] != text || hostile.Found(page.String()) != "" {
				t.Errorf("%q as %s is %q, which is decoded as %q (error %v)", text, format, page.String(), got, err)
			}
		}
	}
}

// TestAStreamIsOneList also covers an item that must be written in quotes.
func TestAStreamIsOneList(t *testing.T) {
	plain, quoted := emptyPort(), emptyPort()
	quoted.Message = "a\u202eb" + hostile.Text
	for _, ports := range [][]explain.PortReport{{plain}, {quoted}, {quoted, plain}, {plain, quoted, quoted, plain}} {
		for _, format := range []string{"json", "yaml"} {
			var page strings.Builder
			if err := write(format)(&page, ports); err != nil {
				t.Fatal(err)
			}
			var got []explain.PortReport
			if err := yaml.Unmarshal([]byte(page.String()), &got); err != nil || hostile.Found(page.String()) != "" {
				t.Fatalf("%s: error %v, or control characters, in\n%s", format, err, page.String())
			}
			if diff := cmp.Diff(ports, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", format, diff)
			}
		}
	}
}
