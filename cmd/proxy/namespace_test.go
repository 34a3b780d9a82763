package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestANamespaceIsChosenAsWithKubectl(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		want   string // the Services in the output, or a part of the error
	}{
		{"forecast -o json", 0,
			"ops/logs ops/metrics shop/api shop/cart shop/db shop/images shop/login shop/mail shop/search shop/web ops/billing"},
		{"forecast -o json -n ops", 0, "ops/logs ops/metrics ops/billing"},
		{"forecast -o json -n ops --evacuate zone-b", 0, "ops/logs ops/metrics ops/billing ops/metrics ops/logs ops/metrics ops/billing"},
		{"forecast -o json --namespace shop cart", 0, "shop/cart"},
		{"forecast -o json -n shop shop/cart", 0, "shop/cart"},
		{"explain -o json --node node-a1 -n ops", 0, "ops/logs ops/metrics"},
		{"explain -o json --node node-a1 -n shop cart:http", 0, "shop/cart"},
		{"explain -o json --all-nodes -n ops logs", 0, "ops/logs"},
		{"explain -o json --node node-a1 -n shop cart --why node-a1", 0, "shop/cart"},
		{"forecast -n shop ops/logs", 2, "ops/logs is not in the namespace of --namespace, shop"},
		{"forecast -n shpo", 2, "there is no Service in the namespace shpo of " + shopFolder + "; did you mean shop?"},
		{"explain --node node-a1 -n nowhere", 1, "there is no Service in the namespace nowhere of " + shopFolder + "\n"},
		{"forecast -n Shop", 2, `--namespace "Shop" is not a valid namespace name`},
		{"forecast -n shop carts", 2, "service shop/carts not found; did you mean shop/cart?"},
		{"forecast cart", 2, "the namespace is missing, as in default/cart"}, // a folder has no context
	} {
		got := proxyCommand(t, append(splitArgs(test.args), "--manifests", shopFolder)...)
		output := got.stderr
		if test.status == 0 {
			output = strings.Join(servicesNamed(got.stdout), " ")
		}
		if got.status != test.status || !strings.Contains(output, test.want) || test.status == 0 && output != test.want {
			t.Errorf("%s: status %d, %s; want %d, %s", test.args, got.status, output, test.status, test.want)
		}
	}
}

// TestAForecastOfANamespaceNamesIt: otherwise it could be mistaken for a forecast of the whole cluster.
func TestAForecastOfANamespaceNamesIt(t *testing.T) {
	for args, want := range map[string]string{
		"": "9 Nodes and 2 Services of the namespace ops, ", "-o json": `"namespace": "ops"`,
		"-o html": `"namespace":"ops"`, "--evacuate zone-b": "Before and after of the namespace ops: --evacuate zone-b. ",
	} {
		got := proxyCommand(t, splitArgs("forecast -n ops --manifests "+shopFolder+" "+args)...)
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: status %d, or the output lacks %q: %.200s %s", args, got.status, want, got.stdout, got.stderr)
		}
	}
}

// TestRejectedServiceOfAnotherNamespaceIsIgnored: if only another namespace is requested, the Service does not change
// the exit status.
func TestRejectedServiceOfAnotherNamespaceIsIgnored(t *testing.T) {
	folder := writeManifests(t, checkedService+`- apiVersion: v1
  kind: Service
  metadata: {namespace: ops, name: bad}
  spec: {clusterIP: nonsense, ports: [{port: 80}]}
`)
	for args, status := range map[string]int{
		"forecast": 2, "forecast -n shop": 0, "forecast -n ops": 2, "explain --node node-1": 2, "explain --node node-1 -n shop": 0,
	} {
		if got := proxyCommand(t, append(splitArgs(args), "--manifests", folder)...); got.status != status {
			t.Errorf("%s: status %d, want %d; %s", args, got.status, status, got.stderr)
		}
	}
}

// servicesNamed returns the names of the Services in JSON, in order.
func servicesNamed(text string) []string {
	var names []string
	for _, found := range regexp.MustCompile(`"service": "([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if len(names) == 0 || names[len(names)-1] != found[1] {
			names = append(names, found[1])
		}
	}
	return names
}

// smallCluster starts an API server with a Node, and a Service web in each of the namespaces shop and default. It
// writes a kubeconfig with three contexts: here, the current one, in the namespace shop; there, without a namespace;
// and broken.
func smallCluster(t *testing.T) (kubeconfig string) {
	t.Helper()
	lists := map[string]string{
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"node-one"}}]}`,
		"/api/v1/services": `{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[
			{"metadata":{"name":"web","namespace":"shop"},"spec":{"clusterIP":"10.96.0.1","clusterIPs":["10.96.0.1"],"ports":[{"port":80}]}},
			{"metadata":{"name":"web","namespace":"default"},"spec":{"clusterIP":"10.96.0.2","clusterIPs":["10.96.0.2"],"ports":[{"port":80}]}}]}`,
		"/apis/discovery.k8s.io/v1/endpointslices": `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{},"items":[]}`,
		"/apis/networking.k8s.io/v1/servicecidrs":  `{"kind":"ServiceCIDRList","apiVersion":"networking.k8s.io/v1","metadata":{},"items":[]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := lists[r.URL.Path]
		node, isOne := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		isLabelled := r.URL.Query().Get("labelSelector") != "" && r.URL.Path == "/api/v1/nodes"
		if isOne && node != "node-one" || isLabelled {
			text = regexp.MustCompile(`"items":\[.*\]}`).ReplaceAllString(text, `"items":[]}`)
		}
		if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			text = strings.NewReplacer("NodeList", "PartialObjectMetadataList", `"v1"`, `"meta.k8s.io/v1"`).Replace(text)
		}
		w.Header().Set("Content-Type", "application/json")
		if text == "" {
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
			return
		}
		_, _ = fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: here, clusters: [{name: a, cluster: {server: %q}}],
contexts: [{name: here, context: {cluster: a, namespace: shop}}, {name: there, context: {cluster: a}},
{name: broken, context: {cluster: b}}]}`, server.URL)
	mustSucceed(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	return kubeconfig
}

func TestANameIsInTheNamespaceOfTheContext(t *testing.T) {
	t.Setenv(serviceHostEnv, "")
	kubeconfig := smallCluster(t)
	for _, test := range []struct {
		args string
		want string
	}{
		{"forecast -o json web", "shop/web"},
		{"forecast -o json --context there web", "default/web"},
		{"forecast -o json -n default web", "default/web"},
		{"forecast -o json default/web", "default/web"},
		{"forecast -o json", "default/web shop/web"},
		{"explain -o json --node node-one web", "shop/web"},
		{"explain -o json --all-nodes --context there web:80", "default/web"},
	} {
		got := pluginCommand(t, append(splitArgs(test.args), "--kubeconfig", kubeconfig)...)
		if services := strings.Join(servicesNamed(got.stdout), " "); got.status != 0 || services != test.want {
			t.Errorf("%s: status %d, %s, want %s; %s", test.args, got.status, services, test.want, got.stderr)
		}
	}
	got := proxyCommand(t, "explain", "--node", "node-one", "web", "-o", "json", "--kubeconfig", kubeconfig)
	if services := strings.Join(servicesNamed(got.stdout), " "); got.status != 0 || services != "shop/web" {
		t.Errorf("not as a plugin: status %d, %s; %s", got.status, services, got.stderr)
	}
}

// TestANodeThatTheAPIServerDoesNotHaveIsAnError: the error has a suggestion.
func TestANodeThatTheAPIServerDoesNotHaveIsAnError(t *testing.T) {
	kubeconfig := smallCluster(t)
	const want = "proxy: there is no Node \"node-oen\" in the cluster; did you mean node-one?\n"
	for _, args := range []string{"explain", "render", "explain shop/web --why node-one"} {
		got := proxyCommand(t, append(splitArgs(args), "--node", "node-oen", "--kubeconfig", kubeconfig)...)
		if got.status != 1 || got.stderr != want {
			t.Errorf("%s: status %d, %q; want 1, %q", args, got.status, got.stderr, want)
		}
	}
}

// TestABrokenContextIsReported: every command that reads a kubeconfig names the file, the context, and the missing
// part.
func TestABrokenContextIsReported(t *testing.T) {
	kubeconfig := smallCluster(t)
	for _, args := range []string{
		"forecast", "forecast web", "explain --all-nodes", "explain --node a web", "explain --node a web --why b", "status",
	} {
		for context, want := range map[string]string{
			"broken": fmt.Sprintf("kubeconfig %q: context \"broken\" names the cluster \"b\", which is missing; there is \"a\"\n", kubeconfig),
			"nobody": fmt.Sprintf("kubeconfig %q has no context \"nobody\"; it has \"broken\", \"here\", \"there\"\n", kubeconfig),
		} {
			got := pluginCommand(t, append(splitArgs(args), "--kubeconfig", kubeconfig, "--context", context)...)
			if got.status != 2 || !strings.HasSuffix(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("%s, %s: status %d, %q; want 2, %q", args, context, got.status, got.stderr, want)
			}
		}
	}
}
