package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/hostile"
)

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expectEscaped runs a command line, and fails if untrusted text reaches the terminal.
func expectEscaped(t *testing.T, what string, args ...string) outcome {
	t.Helper()
	got := proxyCommand(t, args...)
	if found := hostile.Found(got.stdout); found != "" {
		t.Errorf("%s: standard output of %q: %s", what, args, found)
	}
	if found := hostile.Found(got.stderr); found != "" {
		t.Errorf("%s: standard error of %q: %s", what, args, found)
	}
	if line := strings.Join(args, " "); strings.Contains(line, "-o json") || strings.Contains(line, "-o yaml") {
		var read any
		if err := yaml.Unmarshal([]byte(got.stdout), &read); err != nil || strings.Contains(got.stderr, "encode YAML") {
			t.Errorf("%s: the output of %q cannot be decoded: %v, %s", what, args, err, got.stderr)
		}
	}
	return got
}

// folderCommands are command lines that print the contents of a folder.
var folderCommands = [][]string{
	splitArgs("explain --node node-a"), splitArgs("explain --all-nodes -o json"), splitArgs("explain --all-nodes -o yaml"),
	splitArgs("forecast --evacuate topology.kubernetes.io/region=region-1"),
	splitArgs("explain --node node-a shop/web --why 10.244.2.5"), splitArgs("explain --node node-a shop/api --why nobody"),
	splitArgs("explain --node node-c shop/web --why node-b -o yaml"),
	splitArgs("forecast"), splitArgs("forecast -o html"), splitArgs("forecast -o json"), splitArgs("forecast -o yaml"),
	splitArgs("forecast --evacuate zone-b --scale shop/api=zone-a:4 --max-load 1.1 --min-in-zone 0.9"),
	splitArgs("forecast --evacuate zone-x"), splitArgs("forecast shop/wbe"),
	splitArgs("render --node node-a --nodeport-addresses 172.18.0.0/16"),
}

// TestNothingThatOthersWroteReachesTheTerminal: a hostile text is appended to every occurrence of each string in all
// objects, and to each single field of one object of each kind.
func TestNothingThatOthersWroteReachesTheTerminal(t *testing.T) {
	text, err := os.ReadFile("testdata/objects.yaml")
	mustSucceed(t, err)
	objects, err := yaml.YAMLToJSON(text)
	mustSucceed(t, err)
	folder := t.TempDir()
	printed := 0
	check := func(what string, text []byte) {
		mustSucceed(t, os.WriteFile(filepath.Join(folder, "objects.json"), text, 0o600))
		for _, args := range folderCommands {
			got := expectEscaped(t, what, append(slices.Clone(args), "--manifests", folder)...)
			if strings.Contains(got.stdout+got.stderr, hostile.Line) {
				printed++
			}
		}
	}
	mustSucceed(t, hostile.EachName(objects, check))

	var list corev1.List
	mustSucceed(t, json.Unmarshal(objects, &list))
	kinds := map[string]any{
		"Node": &corev1.Node{}, "Service": &corev1.Service{}, "EndpointSlice": &discoveryv1.EndpointSlice{},
		"ServiceCIDR": &networkingv1.ServiceCIDR{},
	}
	for i, item := range list.Items {
		raw := item.Raw
		var kind struct{ Kind string }
		mustSucceed(t, json.Unmarshal(raw, &kind))
		object := kinds[kind.Kind]
		if object == nil {
			continue
		}
		delete(kinds, kind.Kind) // the first object of each kind is enough
		mustSucceed(t, json.Unmarshal(raw, object))
		hostile.EachField(object, func(field string) {
			changed, err := json.Marshal(object)
			mustSucceed(t, err)
			list.Items[i].Raw = changed
			all, err := json.Marshal(list)
			mustSucceed(t, err)
			check(kind.Kind+field, all)
		})
		list.Items[i].Raw = raw
	}
	if printed < 100 { // otherwise the injected texts would not be in the output
		t.Errorf("only %d outputs have an injected text", printed)
	}
}
