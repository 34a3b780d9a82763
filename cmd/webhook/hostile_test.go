package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/hostile"
)

// TestCheckedFilesAreEscaped covers each text of objects that violate rules, the texts of the configuration, and the
// names of files.
func TestCheckedFilesAreEscaped(t *testing.T) {
	const (
		objects = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-a, labels: {rack: r1}}}
- apiVersion: v1
  kind: Namespace
  metadata: {name: shop, annotations: {vicinity.dev/default-topology-mode: auto}}
- apiVersion: v1
  kind: Service
  metadata:
    name: web
    namespace: shop
    labels: {app: web}
    annotations:
      vicinity.dev/topology-keys: "rak, rack, rack, *"
      vicinity.dev/max-load: 12%
      vicinity.dev/clients: shop/api, api
      service.kubernetes.io/topology-mode: Auto
  spec: {selector: {a: b}, trafficDistribution: PreferSameZone, topologyKeys: [rack], ports: [{port: 80}]}
`
		config = `{apiVersion: vicinity.dev/v1alpha1, kind: TopologyAdmissionConfiguration, strict: true, rules: {SVC027: deny, x: y},
defaults: {topologyMode: Auto}, excludedNamespaces: [kube-system], proxyName: other, unknown: 5}`
	)
	inFolder(t, map[string]string{"objects.yaml": objects})
	printed := 0
	check := func(what string, args ...string) {
		for _, more := range [][]string{nil, {"-o", "json"}, {"--strict"}} {
			got := webhookCommand(t, "", append(append([]string{"check"}, args...), more...)...)
			if found := hostile.Found(got.stdout) + hostile.Found(got.stderr); found != "" {
				t.Errorf("%s: %s in %q and %q", what, found, got.stdout, got.stderr)
			}
			if strings.Contains(got.stdout+got.stderr, hostile.Line) {
				printed++
			}
		}
	}
	eachName := func(text string, do func(name string, text []byte)) {
		asJSON, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			err = hostile.EachName(asJSON, do)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string, text []byte) {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eachName(objects, func(name string, text []byte) {
		write("changed.json", text)
		check(name, "-f", "changed.json")
	})
	eachName(config, func(name string, text []byte) {
		write("config.json", text)
		check(name, "-f", "objects.yaml", "--config", "config.json")
	})
	folder := "b" + hostile.Text
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(folder, "a\x9b\n"+hostile.Line+".yaml"), []byte("{"+hostile.Text))
	write(filepath.Join(folder, "raw.yaml"), []byte("a\x1b[31m\x9b31m"))
	check("a folder", "-f", folder)
	check("files that are excluded", "-v", "-f", folder, "--exclude", "*"+hostile.Text)
	check("a file that is missing", "-f", hostile.Text)
	check("a configuration that is missing", "-f", "objects.yaml", "--config", hostile.Text)
	check("a file that is no configuration", "-f", "objects.yaml", "--config", filepath.Join(folder, "raw.yaml"))
	if printed < 50 { // otherwise the injected texts would not be in the output
		t.Errorf("only %d outputs have an injected text", printed)
	}
}
