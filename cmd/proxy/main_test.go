package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

// outcome is the result of a command line.
type outcome struct {
	status         int
	stdout, stderr string
}

// proxyCommand runs a command line as main does, inside the test process.
func proxyCommand(t *testing.T, args ...string) outcome {
	t.Helper()
	return proxyCommandOn(t, strings.NewReader(""), args...)
}

// proxyCommandOn is proxyCommand with a standard input.
func proxyCommandOn(t *testing.T, stdin io.Reader, args ...string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	status := cli.Run(t.Context(), newRoot(), args, stdin, &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

func splitArgs(line string) []string { return strings.Fields(line) }

// splitSpacedArgs is splitArgs, but replaces the first underscore of each argument by a space.
func splitSpacedArgs(line string) []string {
	list := splitArgs(line)
	for i, word := range list {
		list[i] = strings.Replace(word, "_", " ", 1)
	}
	return list
}

// expectInOrder expects that a text has all parts, in the given order.
func expectInOrder(t *testing.T, name, text string, parts []string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("%s: %q is missing after the part before it:\n%s", name, part, text)
		}
		rest = after
	}
}

func TestAWrongCommandLineIsReportedOnceWithItsUsage(t *testing.T) {
	t.Setenv(serviceHostEnv, "")
	tests := map[string]struct {
		args   []string
		stderr string // the first line, without "proxy: "
		usage  string
	}{
		"no command": {
			nil, "missing command; must be one of: cleanup, completion, explain, flows, forecast, render, run, status, version", "proxy COMMAND",
		},
		"an unknown command": {splitArgs("frobnicate"), `unknown command "frobnicate"`, "proxy COMMAND"},
		"a mistyped command": {splitArgs("expain --manifests x"), `unknown command "expain"; did you mean "explain"?`, "proxy COMMAND"},
		"an unknown flag":    {splitArgs("version --loud"), "unknown flag: --loud", "proxy version [-o json]"},
		"a mistyped flag":    {splitArgs("version --outptu json"), "unknown flag: --outptu; did you mean --output?", "proxy version [-o json]"},
		"a flag that begins with another": {
			splitArgs("run --traffic-accounting-keys zone"), "unknown flag: --traffic-accounting-keys; did you mean --traffic-accounting?",
			"proxy run [flags]",
		},
		"a former flag": {splitArgs("run --account totals"), "unknown flag: --account; did you mean --traffic-accounting?", "proxy run [flags]"},
		"a former flag of forecast": {
			splitArgs("forecast --clients assumed"), "unknown flag: --clients; did you mean --demand-source?",
			"proxy forecast [[NAMESPACE/]NAME] [flags]",
		},
		"an unknown shorthand": {splitArgs("version -x"), "unknown shorthand flag: 'x' in -x", "proxy version [-o json]"},
		"a flag without effect on it": {
			splitArgs("explain --sync-period 1s"), "unknown flag: --sync-period",
			"proxy explain [[NAMESPACE/]NAME[:PORT] | ADDRESS:PORT] [flags]",
		},
		"a flag without its value": {
			splitArgs("render --manifests"), "flag needs an argument: --manifests", "proxy render [flags]",
		},
		"a missing flag": {
			splitArgs("render --node a"),
			"--manifests PATH, --kubeconfig FILE or --master URL is required outside of a pod: it is where the Services come from",
			"proxy render [flags]",
		},
		"a bad value":        {splitArgs("version -o yaml"), `--output "yaml" must be one of: text, json`, "proxy version [-o json]"},
		"too many arguments": {splitArgs("version now"), `unexpected argument "now"`, "proxy version [-o json]"},
		"a second Service": {
			splitArgs("explain --manifests x shop/web shop/api"), `unexpected argument "shop/api"`,
			"proxy explain [[NAMESPACE/]NAME[:PORT] | ADDRESS:PORT] [flags]",
		},
		"a malformed Service": {
			splitArgs("explain --manifests x web"), `query "web" is not NAMESPACE/NAME[:PORT]: the namespace is missing, as in default/web`,
			"proxy explain [[NAMESPACE/]NAME[:PORT] | ADDRESS:PORT] [flags]",
		},
		"two flags that exclude each other": {
			splitArgs("explain --manifests x --all-nodes --node a"), "--all-nodes and --node exclude each other",
			"proxy explain [[NAMESPACE/]NAME[:PORT] | ADDRESS:PORT] [flags]",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			help := "proxy"
			if len(test.args) > 0 && test.usage != "proxy COMMAND" {
				help += " " + test.args[0]
			}
			want := outcome{2, "", "proxy: " + test.stderr + "\nusage: " + test.usage + "\nSee '" + help + " --help'.\n"}
			if diff := cmp.Diff(want, proxyCommand(t, test.args...), cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSeveralMistakesAreReportedAtOnce(t *testing.T) {
	t.Setenv(serviceHostEnv, "")
	got := proxyCommand(t, splitArgs("explain --all-nodes --node a -o xml web")...)
	if got.status != 2 {
		t.Errorf("exit status %d, want 2", got.status)
	}
	for _, mistake := range []string{`"web"`, "--manifests", "--all-nodes", `"xml"`} {
		if !strings.Contains(got.stderr, mistake) {
			t.Errorf("%s is not reported:\n%s", mistake, got.stderr)
		}
	}
	if lines := strings.Count(got.stderr, "proxy: "); lines != 4 {
		t.Errorf("%d lines with mistakes, want 4, one for each:\n%s", lines, got.stderr)
	}
}

func TestEveryCommandHasUsageAndExamples(t *testing.T) {
	for _, command := range newRoot().Commands() {
		if command.Name() == "help" {
			continue
		}
		t.Run(command.Name(), func(t *testing.T) {
			got := proxyCommand(t, command.Name(), "--help")
			if got.status != 0 || got.stderr != "" {
				t.Errorf("exit status %d, stderr %q; want 0 and nothing", got.status, got.stderr)
			}
			for _, part := range []string{"Usage:\n  proxy " + command.Name(), "Examples:\n", "proxy " + command.Name(), "Flags:\n"} {
				if !strings.Contains(got.stdout, part) {
					t.Errorf("the help lacks %q:\n%s", part, got.stdout)
				}
			}
		})
	}
}

// TestHelpListsKubectlCommands: if the API server lacks one of the kinds, kubectl prints nothing at all. So there is a
// separate command for ServiceCIDRs, which Kubernetes has since 1.33.
func TestHelpListsKubectlCommands(t *testing.T) {
	help := proxyCommand(t, "--help").stdout
	for _, command := range []string{
		"kubectl get services,endpointslices,nodes -A -o yaml > all.yaml", "kubectl get servicecidrs -o yaml > servicecidrs.yaml",
	} {
		if !strings.Contains(help, command) {
			t.Errorf("the help lacks %q:\n%s", command, help)
		}
	}
}

func TestVersion(t *testing.T) {
	previous := version
	t.Cleanup(func() { version = previous })
	version = "v1.2.3"

	text := proxyCommand(t, "version")
	if text.status != 0 || !strings.HasPrefix(text.stdout, "vicinity v1.2.3, go") {
		t.Errorf("version: exit status %d, stdout %q", text.status, text.stdout)
	}
	var build cli.Build
	if err := json.Unmarshal([]byte(proxyCommand(t, "version", "-o", "json").stdout), &build); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cli.Build{Version: "v1.2.3", GoVersion: thisBuild().GoVersion, Platform: thisBuild().Platform}, build); diff != "" {
		t.Errorf("version -o json (-want +got):\n%s", diff)
	}
}

func TestABuildWithoutAVersionStillNamesItself(t *testing.T) {
	previous := version
	t.Cleanup(func() { version = previous })
	version = ""
	if got := thisBuild().Version; got == "" {
		t.Error("the version is empty")
	}
}
