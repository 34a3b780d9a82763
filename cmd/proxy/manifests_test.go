//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// newerManifests has checkedService as a newer Kubernetes writes it, with unknown fields.
var newerManifests = strings.NewReplacer("spec: {", "spec: {newIn138: {a: b}, ", "endpoints: [{",
	"endpoints: [{brandNew: 1, ").Replace(checkedService)

// TestManifestsMayBeAFolderAFileAPipeOrStandardInput: the output is the same; only the name in warnings differs.
func TestManifestsMayBeAFolderAFileAPipeOrStandardInput(t *testing.T) {
	folder := writeManifests(t, newerManifests)
	file := filepath.Join(folder, "state.yaml")
	withoutExtension := filepath.Join(t.TempDir(), "state")
	mustSucceed(t, os.WriteFile(withoutExtension, []byte(newerManifests), 0o600))
	pipe := filepath.Join(t.TempDir(), "pipe")
	mustSucceed(t, unix.Mkfifo(pipe, 0o600))
	for _, command := range []string{
		"forecast", "forecast shop/web -o json", "forecast --evacuate a", "explain --all-nodes", "explain --node node-1 shop/web",
		"explain --node node-1 shop/web --why 10.244.1.1", "explain --node node-1 shop/nope", "render --node node-1",
	} {
		want := proxyCommand(t, append(splitArgs(command), "--manifests", folder)...)
		if want.status != 0 && !strings.Contains(command, "nope") {
			t.Fatalf("%s: %+v", command, want)
		}
		for path, name := range map[string]string{file: "state.yaml", withoutExtension: "state", pipe: pipe, "-": "<stdin>"} {
			if path == pipe {
				go func() { _ = os.WriteFile(pipe, []byte(newerManifests), 0o600) }() // the command reports errors
			}
			got := proxyCommandOn(t, strings.NewReader(newerManifests), append(splitArgs(command), "--manifests", path)...)
			got.stderr = strings.ReplaceAll(got.stderr, "warning: "+name+": ", "warning: state.yaml: ")
			origin := path
			if path == "-" {
				origin = "standard input"
			}
			got.stderr = strings.ReplaceAll(got.stderr, "in "+origin, "in "+folder)
			if got != want {
				t.Errorf("%s --manifests %s: %+v, want %+v", command, path, got, want)
			}
		}
	}
}

// TestAFieldOfManyObjectsIsReportedOnce: a newer cluster may write an unknown field into every object.
func TestAFieldOfManyObjectsIsReportedOnce(t *testing.T) {
	got := proxyCommandOn(t, strings.NewReader(newerManifests), splitArgs("forecast --manifests -")...)
	want := "warning: <stdin>: EndpointSlice shop/api-1: endpoints[0].brandNew: " + manifest.ForeignField + "; it counts as absent; " +
		"also in 1 more of this kind\n" +
		"warning: <stdin>: Service shop/api: spec.newIn138: " + manifest.ForeignField + "; it counts as absent; " +
		"also in 1 more of this kind\n"
	if got.status != 0 || got.stderr != want {
		t.Errorf("got %+v, want status 0 and %s", got, want)
	}
}

// TestStandardInputIsReadOnceAndUpToASize: standard input may have JSON values, and the daemon rejects it, because the
// daemon watches its manifests.
func TestStandardInputIsReadOnceAndUpToASize(t *testing.T) {
	for name, test := range map[string]struct {
		command, stdin string
		status         int
		want           string
	}{
		"JSON values": {
			"explain --node n", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}{"apiVersion":"v1","kind":"ConfigMap"}`, 2,
			"found: Node (1), ConfigMap (1)\n",
		},
		"nothing":        {"forecast", "", 2, "in standard input, so nothing can be forecast; "},
		"no manifests":   {"forecast", "a: [", 2, "<stdin>: line "},
		"the daemon":     {"run --node n", checkedService, 2, "--manifests - can be read only once, and 'run' watches its manifests"},
		"with a context": {"explain --node n --kubeconfig x", checkedService, 2, "--manifests and --kubeconfig exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			got := proxyCommandOn(t, strings.NewReader(test.stdin), append(splitArgs(test.command), "--manifests", "-")...)
			if got.status != test.status || !strings.Contains(got.stderr, test.want) {
				t.Errorf("got %+v, want status %d and %q", got, test.status, test.want)
			}
		})
	}
	zeros, err := os.Open("/dev/zero")
	mustSucceed(t, err)
	defer func() { _ = zeros.Close() }()
	got := proxyCommandOn(t, zeros, splitArgs("forecast --manifests -")...)
	if got.status != 2 || !strings.Contains(got.stderr, "read <stdin>: larger than the limit of 268435456 bytes") {
		t.Errorf("endless input: %+v", got)
	}
}

// TestACheckReadsStandardInput: unlike the daemon, the check reads the manifests only once.
func TestACheckReadsStandardInput(t *testing.T) {
	var got outcome
	netns.New(t).Do(func() {
		args := append(splitArgs("run --check --node node-a --manifests - --config"), configFile(t))
		got = proxyCommandOn(t, strings.NewReader(nodePortManifests), args...)
	})
	if got.status != 0 || !strings.Contains(onOneLine(got.stdout), "Node: node-a names 172.18.0.2") {
		t.Errorf("%+v", got)
	}
}

// TestTheDaemonFollowsAFile: a change of an endpoint takes effect, in a file with fields of a newer Kubernetes.
func TestTheDaemonFollowsAFile(t *testing.T) {
	state := strings.Replace(dnsManifests, "  - {addresses", "  - {brandNew: 1, addresses", 1)
	namespace, file := netns.New(t), filepath.Join(writeManifests(t, state), "state.yaml")
	const at = "--metrics-bind-address=127.0.0.1:10549"
	daemon := startDaemon(t, namespace, "--manifests", file, "--own-tables", "never", at)
	has := func(endpoint string) bool {
		return strings.Contains(namespace.NFT("list", "map", "ip", "vicinity", "endpoints"), endpoint)
	}
	if !has("10.244.1.5") {
		t.Error("the endpoint is not in the kernel after the first sync")
	}
	mustSucceed(t, os.WriteFile(file, []byte(strings.Replace(state, "10.244.1.5", "10.244.1.7", 1)), 0o600))
	wait.Until(t, "the endpoint moves", func() bool { return has("10.244.1.7") && !has("10.244.1.5") })
	if node, exit := nodeStatusIn(t, namespace, at); exit != 0 || !node.InSync || len(node.Invalid) > 0 {
		t.Errorf("exit status %d, %+v", exit, node)
	}
	log := daemon.stop(t).stderr
	if count := strings.Count(log, "endpoints[0].brandNew"); count != 1 {
		t.Errorf("the field is reported %d times:\n%s", count, log)
	}
}
