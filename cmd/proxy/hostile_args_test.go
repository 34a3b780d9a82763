package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/hostile"
)

// TestNoFlagAndNoArgumentReachesTheTerminalAsItIs covers each command.
func TestNoFlagAndNoArgumentReachesTheTerminalAsItIs(t *testing.T) {
	manifests, err := filepath.Abs(stateFolder)
	mustSucceed(t, err)
	t.Chdir(t.TempDir())
	t.Setenv(serviceHostEnv, "")
	t.Setenv("KUBECONFIG", "absent")
	otherArgs := [][]string{{}, {"--manifests", manifests}, {"shop/web", "--manifests", manifests, "--node", "node-a"}}
	for _, command := range newRoot().Commands() {
		if command.Name() == "run" { // it must not start, whatever the flag's value
			otherArgs = [][]string{splitArgs("--oom-score-adj 5000")}
		}
		for _, hostileText := range []string{
			hostile.Text, "a" + hostile.Text + "=b", "shop/web=" + hostile.Text, "shop/web:" + hostile.Text, "\x9b1m\xff",
		} {
			expectEscaped(t, "an argument", command.Name(), hostileText)
			expectEscaped(t, "a flag's name", command.Name(), "--"+hostileText)
			command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
				for _, other := range otherArgs {
					args := append([]string{command.Name(), "--" + flag.Name + "=" + hostileText}, other...)
					expectEscaped(t, "a flag", args...)
				}
			})
		}
	}
	expectEscaped(t, "help for no command", "help", hostile.Text)
	for _, args := range [][]string{{hostile.Text}, {"--" + hostile.Text}, {"-" + hostile.Text}} {
		if got := expectEscaped(t, "no command", args...); got.status != 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// TestFilesAreEscaped covers the names of files, and contents that are not an object.
func TestFilesAreEscaped(t *testing.T) {
	nodes, err := os.ReadFile("testdata/objects.yaml")
	mustSucceed(t, err)
	const hostileName = "a\x1b[31m\x9b\n" + hostile.Line + ".yaml"
	raw := "a\x1b[31m\x9b31m\u202e" // neither YAML nor JSON
	for name, text := range map[string]string{
		"no YAML": "{" + hostile.Text, "raw bytes": raw, "raw bytes in a text": `{"kind": "` + raw + `", "apiVersion": "v1"}`,
		"a broken object": "apiVersion: v1\nkind: Service\nmetadata: {name: 5}\n", "UTF-16": "\xff\xfea\x00",
		"a list that is cut off": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: a",
		"objects":                string(nodes),
	} {
		folder := filepath.Join(t.TempDir(), "b\x1b\n"+hostile.Line)
		mustSucceed(t, os.Mkdir(folder, 0o755))
		mustSucceed(t, os.WriteFile(filepath.Join(folder, "nodes.yaml"), nodes, 0o600))
		mustSucceed(t, os.WriteFile(filepath.Join(folder, hostileName), []byte(text), 0o600))
		mustSucceed(t, os.Symlink("nowhere"+hostile.Text, filepath.Join(folder, "link.yaml")))
		for _, args := range folderCommands {
			got := expectEscaped(t, name, append(slices.Clone(args), "--manifests", folder)...)
			if got.status == 0 || !strings.Contains(got.stderr, `\n`+hostile.Line+".yaml") {
				t.Errorf("%s: %q succeeded, or its error does not name the file: status %d, %s", name, args, got.status, got.stderr)
			}
		}
		expectEscaped(t, name, "explain", "--node", "nobody", "--manifests", folder)
		expectEscaped(t, name, "explain", "--node", "node-a", "--manifests", filepath.Join(folder, hostileName))
		config := filepath.Join(folder, "config")
		mustSucceed(t, os.WriteFile(config, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"+text), 0o600))
		expectEscaped(t, name, "run", "--config", config, "--oom-score-adj", "5000")
		expectEscaped(t, name, "forecast", "--kubeconfig", config)
	}
}

// TestDemandFilesAreEscaped covers the names of nodes and zones, Prometheus' response, and the file's own name.
func TestDemandFilesAreEscaped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demand"+hostile.Text)
	check := func(what string, text []byte) {
		mustSucceed(t, os.WriteFile(file, text, 0o600))
		for _, more := range []string{"", "-o json", "-o yaml", "-o html", "--evacuate zone-b"} {
			expectEscaped(t, what, append(splitArgs("forecast --manifests testdata/state --demand"),
				append([]string{file}, splitArgs(more)...)...)...)
		}
	}
	for _, text := range []string{
		`{"node-a": 1, "zone-b": 2}`, `{"node-a": "x", "zone-b": 2}`, `{"status": "error", "errorType": "execution", "error": "bad"}`,
		`{"status": "success", "data": {"resultType": "matrix", "result": []}}`,
		`{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"node": "node-a", "pod": "p"}, "value": [1, "2"]}]}}`,
		`[{"metric": {"node": "node-a"}, "value": [1, "2"]}, {"metric": {"node": "node-a"}, "value": [1, "2"]}]`,
	} {
		check("as it is", []byte(text))
		mustSucceed(t, hostile.EachName([]byte(text), check))
	}
	check("no YAML", []byte("{"+hostile.Text))
	check("twice", []byte("a: 1\n\"a\\x1b\\nforged\": 2\n\"a\\x1b\\nforged\": 3\n"))
}
