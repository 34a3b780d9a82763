package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// judged is a small cluster of which a forecast knows all.
const judged = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {topology.kubernetes.io/zone: a}}}
- apiVersion: v1
  kind: Service
  metadata:
    namespace: shop
    name: web
    annotations: {service.kubernetes.io/topology-mode: vicinity.dev/balanced, vicinity.dev/clients: shop/api}
  spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: api}
  spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{port: 8080}]
  endpoints: [{addresses: [10.244.1.1], nodeName: node-1}]
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {namespace: shop, name: api-1, labels: {kubernetes.io/service-name: api}}
  addressType: IPv4
  ports: [{port: 8080}]
  endpoints: [{addresses: [10.244.1.2], nodeName: node-1}]
`

// TestAForecastThatCouldNotReadAllIsNoPass, be it a gate or not, and neither is an explanation or a ruleset. A Service that
// nobody asked about is no matter.
func TestAForecastThatCouldNotReadAllIsNoPass(t *testing.T) {
	type statuses struct{ all, web int } // of commands about all Services, and about shop/web
	replaced := func(old, with string) string {
		if !strings.Contains(judged, old) {
			t.Fatalf("there is no %q", old)
		}
		return strings.Replace(judged, old, with, 1)
	}
	for name, test := range map[string]struct {
		text string
		more map[string]string // files
		want statuses
	}{
		"all is read":                   {judged, nil, statuses{0, 0}},
		"another Service is refused":    {replaced("clusterIP: 10.96.0.2", "clusterIP: nonsense"), nil, statuses{2, 0}},
		"an unknown field of another":   {replaced("clusterIP: 10.96.0.2", "clusterIPP: 10.96.0.2"), nil, statuses{2, 0}},
		"a field of a newer Kubernetes": {replaced("clusterIP: 10.96.0.2", "newIn138: {a: b}, clusterIP: 10.96.0.2"), nil, statuses{0, 0}},
		"one of each slice":             {strings.ReplaceAll(judged, "nodeName:", "brandNew: 1, nodeName:"), nil, statuses{0, 0}},
		"a Node is refused":             {judged + "- {apiVersion: v1, kind: Node, metadata: {name: N_O}}\n", nil, statuses{2, 2}},
		"an unknown field of a Node":    {judged + "- {apiVersion: v1, kind: Node, metadata: {name: n}, specc: {}}\n", nil, statuses{2, 2}},
		"its EndpointSlice is refused":  {replaced("10.244.1.1", "nonsense"), nil, statuses{2, 2}},
		"its clients' is":               {replaced("10.244.1.2", "nonsense"), nil, statuses{2, 2}},
		"an unknown field of a slice":   {replaced("ports: [{port: 8080}]", "portss: []"), nil, statuses{2, 2}},
		"a file is cut off":             {judged, map[string]string{"b.yaml": judged[:len(judged)-3]}, statuses{2, 2}},
		"a file is no YAML":             {judged, map[string]string{"b.yaml": "{"}, statuses{2, 2}},
		"a JSON file is cut off":        {judged, map[string]string{"b.json": `{"apiVersion":"v1","kind":"List","items":[`}, statuses{2, 2}},
		"an object is there twice":      {judged, map[string]string{"b.yaml": judged}, statuses{2, 2}},
		"a link leads nowhere":          {judged, map[string]string{"b.yaml": ""}, statuses{2, 2}},
		"an object without a name":      {judged + "- {apiVersion: v1, kind: Node}\n", nil, statuses{2, 2}},
	} {
		folder := writeState(t, test.text)
		for file, text := range test.more {
			if text == "" {
				succeed(t, os.Symlink("nowhere", filepath.Join(folder, file)))
			} else {
				succeed(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
			}
		}
		for command, want := range map[string]int{
			"forecast": test.want.all, "forecast --max-load 3": test.want.all, "forecast --min-near 0.5 -o json": test.want.all,
			"forecast --evacuate a -o yaml": test.want.all, "forecast -o html": test.want.all,
			"forecast shop/web": test.want.web, "forecast shop/web --max-load 3": test.want.web,
			"explain --all-nodes": test.want.all, "explain --node node-1 -o json": test.want.all, "render --node node-1": test.want.all,
			"explain --node node-1 shop/web": test.want.web, "explain --all-nodes shop/web": test.want.web,
			"explain --node node-1 shop/web --why node-1": test.want.web,
		} {
			got := proxyCommand(t, append(words(command), "--manifests", folder)...)
			if hasNoAnswer := strings.Contains(command, "--why") && got.status == 1; got.status != want && (!hasNoAnswer || want == 0) {
				t.Errorf("%s: %s: status %d, want %d; %s", name, command, got.status, want, got.stderr)
			}
			if want != 0 && !strings.Contains(got.stderr, "warning: ") {
				t.Errorf("%s: %s does not say what is left out: %s", name, command, got.stderr)
			}
		}
	}
}

// TestAGateOfNothingIsNoPass: a folder of another cluster, or of none.
func TestAGateOfNothingIsNoPass(t *testing.T) {
	folder := writeState(t, "{apiVersion: v1, kind: Node, metadata: {name: node-1}}")
	for _, gate := range []string{"", "--max-load 2", "--min-near 0.1", "-o json"} {
		got := proxyCommand(t, append(words("forecast "+gate), "--manifests", folder)...)
		if got.status != 2 || !strings.Contains(got.stderr, "proxy: there is no Service whose connections could be forecast\n") {
			t.Errorf("%s: %+v", gate, got)
		}
	}
}

// TestAMissIsLessThanWhatCouldNotBeRead: the status says that the judgement is about a part, and the misses are told.
func TestAMissIsLessThanWhatCouldNotBeRead(t *testing.T) {
	folder := writeState(t, judged)
	got := proxyCommand(t, words("forecast --max-load 0.5 --manifests "+folder)...)
	if got.status != 1 {
		t.Errorf("a miss: %+v", got)
	}
	succeed(t, os.WriteFile(filepath.Join(folder, "b.yaml"), []byte("{"), 0o600))
	got = proxyCommand(t, words("forecast --max-load 0.5 --manifests "+folder)...)
	if got.status != 2 || !strings.Contains(got.stderr, "times the mean, and --max-load is 0.5") {
		t.Errorf("a miss, and a file that is no YAML: %+v", got)
	}
}

// TestADemandThatIsNoneIsNoPass: see also the table of what is read of it.
func TestADemandThatIsNoneIsNoPass(t *testing.T) {
	folder, file := writeState(t, judged), filepath.Join(t.TempDir(), "demand")
	for text, want := range map[string]string{
		"node-1: 1\n": "", "a: 1\n": "", "node-1: 1\nnode-1: 2\n": "already set", "node-1: .nan\n": "NaN",
		"node-1: 1e400\n": "neither a mapping",
		"node-2: 1\n":     "no Node has this name", "node-1: 0\n": "all weights are 0", "node-1: -1\n": "is no weight",
		"node-1:\n": "the number is missing",
		`[{"metric":{"node":"node-1","a":"b"},"value":[1,"1e308"]},{"metric":{"node":"node-1"},"value":[1,"1e308"]}]`: "is no weight",
	} {
		succeed(t, os.WriteFile(file, []byte(text), 0o600))
		status := 0
		if want != "" {
			status = 2
		}
		for _, gate := range []string{"", "--max-load 3 --min-near 0"} {
			got := proxyCommand(t, append(words("forecast "+gate), "--manifests", folder, "--demand", file)...)
			if got.status != status || !strings.Contains(got.stderr, want) {
				t.Errorf("%q %s: status %d, %s; want %d, %q", text, gate, got.status, got.stderr, status, want)
			}
		}
	}
	got := proxyCommand(t, "forecast", "--manifests", folder, "--demand", "/dev/zero")
	if got.status != 2 || !strings.Contains(got.stderr, "read /dev/zero: it has more than 67108864 bytes") {
		t.Errorf("a file without end: %+v", got)
	}
}
