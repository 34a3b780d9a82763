package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkedService is a small cluster without unknown or invalid objects.
const checkedService = `apiVersion: v1
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

// TestIncompleteInputIsNotSuccess: forecast, with and without limits, explain and render exit with status 2. Services
// that were not requested do not matter.
func TestIncompleteInputIsNotSuccess(t *testing.T) {
	type statuses struct{ all, web int } // of commands about all Services, and about shop/web
	replaced := func(old, with string) string {
		if !strings.Contains(checkedService, old) {
			t.Fatalf("there is no %q", old)
		}
		return strings.Replace(checkedService, old, with, 1)
	}
	for name, test := range map[string]struct {
		text string
		more map[string]string // files
		want statuses
	}{
		"complete":                            {checkedService, nil, statuses{0, 0}},
		"another Service is invalid":          {replaced("clusterIP: 10.96.0.2", "clusterIP: nonsense"), nil, statuses{2, 0}},
		"an unknown field of another Service": {replaced("clusterIP: 10.96.0.2", "clusterIPP: 10.96.0.2"), nil, statuses{2, 0}},
		"a field of a newer Kubernetes": {replaced("clusterIP: 10.96.0.2", "newIn138: {a: b}, clusterIP: 10.96.0.2"), nil,
			statuses{0, 0}},
		"a field of a newer Kubernetes in each slice": {strings.ReplaceAll(checkedService, "nodeName:", "brandNew: 1, nodeName:"), nil,
			statuses{0, 0}},
		"a Node is invalid": {checkedService + "- {apiVersion: v1, kind: Node, metadata: {name: N_O}}\n", nil,
			statuses{2, 2}},
		"an unknown field of a Node": {checkedService + "- {apiVersion: v1, kind: Node, metadata: {name: n}, specc: {}}\n",
			nil, statuses{2, 2}},
		"the Service's EndpointSlice is invalid": {replaced("10.244.1.1", "nonsense"), nil, statuses{2, 2}},
		"its clients' EndpointSlice is invalid":  {replaced("10.244.1.2", "nonsense"), nil, statuses{2, 2}},
		"an unknown field of a slice":            {replaced("ports: [{port: 8080}]", "portss: []"), nil, statuses{2, 2}},
		"a file is cut off": {checkedService, map[string]string{"b.yaml": checkedService[:len(checkedService)-3]},
			statuses{2, 2}},
		"a file is not YAML": {checkedService, map[string]string{"b.yaml": "{"}, statuses{2, 2}},
		"a JSON file is cut off": {checkedService,
			map[string]string{"b.json": `{"apiVersion":"v1","kind":"List","items":[`}, statuses{2, 2}},
		"an object is in two files": {checkedService, map[string]string{"b.yaml": checkedService}, statuses{2, 2}},
		"a symbolic link is broken": {checkedService, map[string]string{"b.yaml": ""}, statuses{2, 2}},
		"an object without a name":  {checkedService + "- {apiVersion: v1, kind: Node}\n", nil, statuses{2, 2}},
	} {
		folder := writeManifests(t, test.text)
		for file, text := range test.more {
			if text == "" {
				mustSucceed(t, os.Symlink("nowhere", filepath.Join(folder, file)))
			} else {
				mustSucceed(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
			}
		}
		for command, want := range map[string]int{
			"forecast": test.want.all, "forecast --max-load 3": test.want.all, "forecast --min-in-zone 0.5 -o json": test.want.all,
			"forecast --evacuate a -o yaml": test.want.all, "forecast -o html": test.want.all,
			"forecast shop/web": test.want.web, "forecast shop/web --max-load 3": test.want.web,
			"explain --all-nodes": test.want.all, "explain --node node-1 -o json": test.want.all, "render --node node-1": test.want.all,
			"explain --node node-1 shop/web": test.want.web, "explain --all-nodes shop/web": test.want.web,
			"explain --node node-1 shop/web --why node-1": test.want.web,
		} {
			got := proxyCommand(t, append(splitArgs(command), "--manifests", folder)...)
			if whyFailed := strings.Contains(command, "--why") && got.status == 1; got.status != want && (!whyFailed || want == 0) {
				t.Errorf("%s: %s: status %d, want %d; %s", name, command, got.status, want, got.stderr)
			}
			if want != 0 && !strings.Contains(got.stderr, "warning: ") {
				t.Errorf("%s: %s does not report what is missing: %s", name, command, got.stderr)
			}
		}
	}
}

// TestEmptyInputIsNotSuccess: if a folder has no Services, the message lists the kinds of objects that it has.
func TestEmptyInputIsNotSuccess(t *testing.T) {
	const (
		node   = "{apiVersion: v1, kind: Node, metadata: {name: node-1}}\n---\n"
		others = "{apiVersion: v1, kind: ConfigMap}\n---\n{apiVersion: v1, kind: ConfigMap}\n---\n{apiVersion: apps/v1, kind: Deployment}\n"
	)
	for text, kinds := range map[string]string{node: "Node (1)", node + others: "Node (1), ConfigMap (2), Deployment (1)"} {
		folder := writeManifests(t, text)
		for _, command := range []string{
			"forecast", "forecast --max-load 2", "forecast --min-in-zone 0.1", "forecast -o json", "forecast shop/web", "explain --all-nodes",
			"explain --node node-1", "explain --node node-1 -o json", "explain --node node-1 shop/web",
			"explain --node node-1 shop/web --why node-1", "render --node node-1",
		} {
			got := proxyCommand(t, append(splitArgs(command), "--manifests", folder)...)
			begins, ends := "proxy: there is no Service in "+folder+", so ", "prints Services; found: "+kinds+"\n"
			if got.status != 2 || !strings.HasPrefix(got.stderr, begins) || !strings.HasSuffix(got.stderr, ends) {
				t.Errorf("%s: %+v", command, got)
			}
		}
	}
}

// TestOldKindsAreNamed: Endpoints, and EndpointSlices of old API versions, are reported as kinds that are not read.
func TestOldKindsAreNamed(t *testing.T) {
	const (
		endpoints = "- {apiVersion: v1, kind: Endpoints, metadata: {namespace: shop, name: web}}\n"
		kubectl   = "'kubectl get endpointslices -A -o yaml' prints EndpointSlices; found: "
	)
	beta := strings.ReplaceAll(checkedService, "discovery.k8s.io/v1", "discovery.k8s.io/v1beta1")
	withoutSlices := checkedService[:strings.Index(checkedService, "- apiVersion: discovery")]
	noSlices := "warning: there is no EndpointSlice in FOLDER, so no Service has an endpoint; " + kubectl
	for name, test := range map[string]struct {
		text, want      string
		forecast, other int // statuses
	}{
		"Endpoints and slices": {checkedService + endpoints, "", 0, 0},
		"Endpoints without slices": {
			withoutSlices + endpoints, noSlices + "Service (2), Node (1), v1 Endpoints (1, an old kind that is not read)\n", 2, 2,
		},
		"slices of v1beta1": {
			beta, noSlices + "Service (2), Node (1), discovery.k8s.io/v1beta1 EndpointSlice (2, an old kind that is not read)\n", 2, 2,
		},
		"one slice of v1beta1": {
			strings.Replace(checkedService, "discovery.k8s.io/v1", "discovery.k8s.io/v1beta1", 1),
			"warning: some EndpointSlices in FOLDER are not of discovery.k8s.io/v1, so their endpoints are missing; " + kubectl +
				"Service (2), EndpointSlice (1), Node (1), discovery.k8s.io/v1beta1 EndpointSlice (1, an old kind that is not read)\n", 2, 2,
		},
		"no slices at all": {withoutSlices, noSlices + "Service (2), Node (1)\n", 2, 0},
	} {
		folder := writeManifests(t, test.text)
		for command, status := range map[string]int{
			"forecast": test.forecast, "explain --node node-1": test.other, "render --node node-1": test.other,
		} {
			got := proxyCommand(t, append(splitArgs(command), "--manifests", folder)...)
			first := strings.SplitAfter(got.stderr, "\n")[0]
			if want := strings.Replace(test.want, "FOLDER", folder, 1); got.status != status || first != want || got.stdout == "" {
				t.Errorf("%s: %s: status %d, %s; want %d, %s", name, command, got.status, got.stderr, status, want)
			}
		}
	}
}

// TestUnreadableInputOutranksAViolation: the exit status is that of incomplete input, and the message still lists the
// violations.
func TestUnreadableInputOutranksAViolation(t *testing.T) {
	folder := writeManifests(t, checkedService)
	got := proxyCommand(t, splitArgs("forecast --max-load 0.5 --manifests "+folder)...)
	if got.status != 1 {
		t.Errorf("a violation: %+v", got)
	}
	mustSucceed(t, os.WriteFile(filepath.Join(folder, "b.yaml"), []byte("{"), 0o600))
	got = proxyCommand(t, splitArgs("forecast --max-load 0.5 --manifests "+folder)...)
	if got.status != 2 || !strings.Contains(got.stderr, "times the mean, and --max-load is 0.5") {
		t.Errorf("a violation, and a file that is not YAML: %+v", got)
	}
}

// TestInvalidDemandIsNotSuccess has a few files; TestWeightsAreReadFromQueries in package forecast covers more
// contents.
func TestInvalidDemandIsNotSuccess(t *testing.T) {
	folder, file := writeManifests(t, checkedService), filepath.Join(t.TempDir(), "demand")
	sampleOf := func(label, name, value string) string {
		return fmt.Sprintf(`[{"metric":{%q:%q},"value":[1,%q]}]`, label, name, value)
	}
	for text, want := range map[string]string{
		sampleOf("node", "node-1", "1"): "", sampleOf("zone", "a", "1"): "", sampleOf("node", "node-1", "NaN"): "NaN",
		sampleOf("node", "node-2", "1"): "no Node has this name", sampleOf("node", "node-1", "0"): "all weights are 0",
		sampleOf("node", "node-1", "-1"): "is not a weight", "node-1: 1\n": "not the result of an instant query",
		`[{"metric":{"node":"node-1","a":"b"},"value":[1,"1e308"]},{"metric":{"node":"node-1"},"value":[1,"1e308"]}]`: "is not a weight",
	} {
		mustSucceed(t, os.WriteFile(file, []byte(text), 0o600))
		status := 0
		if want != "" {
			status = 2
		}
		for _, limits := range []string{"", "--max-load 3 --min-in-zone 0"} {
			got := proxyCommand(t, append(splitArgs("forecast "+limits), "--manifests", folder, "--demand", file)...)
			if got.status != status || !strings.Contains(got.stderr, want) {
				t.Errorf("%q %s: status %d, %s; want %d, %q", text, limits, got.status, got.stderr, status, want)
			}
		}
	}
	got := proxyCommand(t, "forecast", "--manifests", folder, "--demand", "/dev/zero")
	if got.status != 2 || !strings.Contains(got.stderr, "read /dev/zero: larger than the limit of 67108864 bytes") {
		t.Errorf("an endless file: %+v", got)
	}
}
