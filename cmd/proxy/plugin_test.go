package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

// pluginCommand runs a command line of the kubectl plugin, inside the test process.
func pluginCommand(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	status := cli.Run(t.Context(), newPlugin(), args, strings.NewReader(""), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

func TestThePluginFindsTheClusterAsKubectlDoes(t *testing.T) {
	t.Setenv(serviceHostEnv, "")
	var requests [2]atomic.Int64
	var servers [2]string
	for i := range servers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests[i].Add(1)
			http.Error(w, "not here", http.StatusForbidden)
		}))
		t.Cleanup(server.Close)
		servers[i] = server.URL
	}
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: here,
clusters: [{name: a, cluster: {server: %q}}, {name: b, cluster: {server: %q}}],
users: [{name: me, user: {token: t}}],
contexts: [{name: here, context: {cluster: a, user: me}}, {name: there, context: {cluster: b, user: me}}]}`, servers[0], servers[1])
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		env, args string
		first     bool // the server of the current context is queried
		status    int
	}{
		{kubeconfig, "forecast", true, 2},
		{kubeconfig, "forecast --context there", false, 2},
		{"", "forecast --kubeconfig " + kubeconfig, true, 2},
		{kubeconfig, "explain --all-nodes", true, 1},
		{kubeconfig, "explain --node node-1 --context there", false, 1},
		{"", "explain --node node-1 --kubeconfig " + kubeconfig, true, 1},
	} {
		t.Setenv("KUBECONFIG", test.env)
		t.Setenv("HOME", t.TempDir())
		requests[0].Store(0)
		requests[1].Store(0)
		got := pluginCommand(t, splitArgs(test.args)...)
		if first, second := requests[0].Load() > 0, requests[1].Load() > 0; first != test.first || second == test.first ||
			got.status != test.status {
			t.Errorf("%s: the first server is queried: %t, the second: %t; status %d, %s", test.args, first, second, got.status, got.stderr)
		}
	}
	t.Setenv("KUBECONFIG", "")
	if got := pluginCommand(t, "forecast"); got.status != 2 || !strings.Contains(got.stderr, "no cluster specified: give a kubeconfig") {
		t.Errorf("without a kubeconfig: status %d, %s", got.status, got.stderr)
	}
	if got := pluginCommand(t, "explain", "shop/web"); got.status != 2 || !strings.Contains(got.stderr, "--node NAME or --all-nodes") {
		t.Errorf("without a node: status %d, %s", got.status, got.stderr)
	}
	if got := pluginCommand(t, "run"); got.status != 2 || !strings.Contains(got.stderr, `unknown command "run"`) {
		t.Errorf("a command that the plugin lacks: status %d, %s", got.status, got.stderr)
	}
}

func TestShellsCompleteCommandsFlagsAndValues(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := proxyCommand(t, "completion", shell); got.status != 0 || !strings.Contains(got.stdout, "__complete") {
			t.Errorf("%s: status %d, %.100s", shell, got.status, got.stdout)
		}
	}
	for _, test := range []struct{ typed, want string }{
		{"fore", "forecast\t"}, {"explain -o ", "yaml"}, {"forecast --output ", "html"}, {"forecast --sc", "--scale\t"}, {"completion ", "zsh"},
	} {
		args := append([]string{"__complete"}, strings.Split(test.typed, " ")...)
		if got := proxyCommand(t, args...); !strings.Contains("\n"+got.stdout, "\n"+test.want) {
			t.Errorf("%q is completed to %q, want %q among the candidates", test.typed, got.stdout, test.want)
		}
	}
	if got := proxyCommand(t, "completion", "tcsh"); strings.Contains(got.stdout, "__complete") || !strings.Contains(got.stdout, "bash") {
		t.Errorf("an unknown shell: status %d, %s", got.status, got.stderr)
	}
}
