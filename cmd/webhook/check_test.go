package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

// checkOutcome is the result of a command line.
type checkOutcome struct {
	status         int
	stdout, stderr string
}

// inFolder changes into a new folder with these files.
func inFolder(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// webhookCommand runs a command line as main does, inside the test process.
func webhookCommand(t *testing.T, stdin string, args ...string) checkOutcome {
	t.Helper()
	var stdout, stderr strings.Builder
	status := cli.Run(t.Context(), newRoot(), args, strings.NewReader(stdin), &stdout, &stderr)
	return checkOutcome{status, stdout.String(), stderr.String()}
}

// serviceText returns a Service with an annotation for topology keys.
func serviceText(name, keys string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %s
  namespace: shop
  annotations:
    vicinity.dev/topology-keys: %q
spec:
  selector: {app: web}
  ports:
  - port: 80
`, name, keys)
}

// balancedText returns the Service web with a load bound and a client.
func balancedText(client string) string {
	return strings.Replace(serviceText("web", "topology.kubernetes.io/zone, *"), "spec:",
		fmt.Sprintf("    service.kubernetes.io/topology-mode: vicinity.dev/balanced\n    vicinity.dev/clients: %q\nspec:", client), 1)
}

const (
	goodKeys = "topology.kubernetes.io/zone,*"
	badKeys  = "rack,rack,*"
	hardKeys = "topology.kubernetes.io/zone"

	badFinding  = `metadata.annotations[vicinity.dev/topology-keys]: Duplicate value: "rack"`
	hardFinding = `metadata.annotations[vicinity.dev/topology-keys]: no "*"`
)

// expectFindings expects lines of the form `<file>:<line>: <object>: <beginning of the message> ... <end>`.
func expectFindings(t *testing.T, got checkOutcome, want ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if got.stdout == "" {
		lines = nil
	}
	matches := len(lines) == len(want)
	for i := 0; matches && i < len(want); i++ {
		beginning, end, _ := strings.Cut(want[i], " ... ")
		matches = strings.HasPrefix(lines[i], beginning) && strings.HasSuffix(lines[i], end)
	}
	if !matches {
		t.Errorf("findings:\n%s\nwant:\n%s", got.stdout, strings.Join(want, "\n"))
	}
}

func expectStatusAndSummary(t *testing.T, got checkOutcome, status int, summary string) {
	t.Helper()
	if got.status != status || got.stderr != summary+"\n" {
		t.Errorf("exit status %d, stderr %q; want %d, %q", got.status, got.stderr, status, summary)
	}
}

func TestEveryFindingHasItsLocationAndTheStatusFollows(t *testing.T) {
	for name, test := range map[string]struct {
		text    string
		args    []string
		want    []string
		status  int
		summary string
	}{
		"nothing is wrong": {serviceText("web", goodKeys), nil, nil, 0, "1 object checked, 0 denied, 0 warnings"},
		"a denial": {
			"# a comment\n" + serviceText("web", "a b"), nil,
			[]string{`a.yaml:8: Service shop/web: metadata.annotations[vicinity.dev/topology-keys]: Invalid value: "a b": ... [SVC003] (deny)`,
				`a.yaml:8: Service shop/web: ` + hardFinding + ` ... [SVC027] (warn)`}[:1], 1, "1 object checked, 1 denied, 0 warnings",
		},
		"a warning": {
			serviceText("web", goodKeys) + "---\n" + serviceText("api", hardKeys), nil,
			[]string{`a.yaml:19: Service shop/api: ` + hardFinding + ` ... [SVC027] (warn)`}, 0, "2 objects checked, 0 denied, 1 warning",
		},
		"a warning that is a denial in strict mode": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: web, annotations: {service.kubernetes.io/topology-mode: Auto}}\n" +
				"spec:\n  selector: {a: b}\n  trafficDistribution: PreferSameZone\n", []string{"--strict"},
			[]string{`a.yaml:6: Service web: spec.trafficDistribution: ... [SVC020] (deny)`}, 1, "1 object checked, 1 denied, 0 warnings",
		},
		"a Namespace": {
			"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  annotations:\n    vicinity.dev/default-topology-mode: auto\n", nil,
			[]string{`a.yaml:6: Namespace shop: metadata.annotations[vicinity.dev/default-topology-mode]: ... [NS001] (deny)`},
			1, "1 object checked, 1 denied, 0 warnings",
		},
		"defaults that an API server fills in": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {a: b}, trafficDistribution: PreferSameZone}\n", nil, nil,
			0, "1 object checked, 0 denied, 0 warnings",
		},
		"spec.topologyKeys": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  selector: {a: b}\n  topologyKeys:\n  - rack\n", nil,
			[]string{`a.yaml:6: Service web: spec.topologyKeys: ... [SVC032] (warn)`}, 0, "1 object checked, 0 denied, 1 warning",
		},
		"an annotation from guides": {
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n" +
				"    service.kubernetes.io/traffic-distribution: PreferClose\n", nil,
			[]string{`a.yaml:6: Service web: metadata.annotations[service.kubernetes.io/traffic-distribution]: unknown annotation; ` +
				`did you mean spec.trafficDistribution? [SVC031] (warn)`}, 0, "1 object checked, 0 denied, 1 warning",
		},
		"other kinds": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: 5\n---\napiVersion: v1\nkind: ConfigMap\n", nil, nil,
			0, "0 objects checked, 0 denied, 0 warnings; 2 skipped",
		},
		"a Service that is opted out": {
			strings.Replace(serviceText("web", badKeys), "  annotations", "  labels: {vicinity.dev/admission: disabled}\n  annotations", 1), nil,
			nil, 0, "0 objects checked, 0 denied, 0 warnings; 1 skipped",
		},
		"a Namespace that is opted out, after its Service": {
			serviceText("web", badKeys) + "---\napiVersion: v1\nkind: Namespace\n" +
				"metadata: {name: shop, labels: {vicinity.dev/admission: disabled}}\n", nil,
			nil, 0, "0 objects checked, 0 denied, 0 warnings; 2 skipped",
		},
		"a Node that lacks the label, after the Service": {
			serviceText("web", "example.com/rack,*") + "---\napiVersion: v1\nkind: Node\n" +
				"metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}\n", nil,
			[]string{`a.yaml:7: Service shop/web: metadata.annotations[vicinity.dev/topology-keys]: ... [SVC030] (warn)`},
			0, "1 object checked, 0 denied, 1 warning; 1 skipped",
		},
		"a client that is among the files": {
			balancedText("shop/api") + "---\n" + serviceText("api", "*"), nil, nil, 0, "2 objects checked, 0 denied, 0 warnings",
		},
		"a client that is missing, with another Service of its Namespace": {
			balancedText("shop/apo") + "---\n" + serviceText("api", "*"), nil,
			[]string{`a.yaml:9: Service shop/web: metadata.annotations[vicinity.dev/clients]: ... [SVC038] (warn)`},
			0, "2 objects checked, 0 denied, 1 warning",
		},
		"a client in a Namespace without objects": {
			balancedText("other/api"), nil, nil, 0, "1 object checked, 0 denied, 0 warnings",
		},
		"a client in a Namespace with only the Service that names it": {
			balancedText("shop/api"), nil, nil, 0, "1 object checked, 0 denied, 0 warnings",
		},
		"an invalid bound": {
			strings.Replace(balancedText("other/api"), "clients: ", "max-load: ", 1), nil,
			[]string{`a.yaml:9: Service shop/web: metadata.annotations[vicinity.dev/max-load]: ... [SVC011] (deny)`},
			1, "1 object checked, 1 denied, 0 warnings",
		},
		"no Node at all": {serviceText("web", "example.com/rack,*"), nil, nil, 0, "1 object checked, 0 denied, 0 warnings"},
	} {
		t.Run(name, func(t *testing.T) {
			inFolder(t, map[string]string{"a.yaml": test.text})
			got := webhookCommand(t, "", append([]string{"check", "-f", "a.yaml"}, test.args...)...)
			expectFindings(t, got, test.want...)
			expectStatusAndSummary(t, got, test.status, test.summary)
		})
	}
}

func TestWhatCannotBeCheckedIsAnErrorWithItsLocation(t *testing.T) {
	service := func(metadata, spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n" + metadata + "spec:\n  selector: {a: b}\n" + spec
	}
	for name, test := range map[string]struct{ text, want string }{
		"a field in the wrong case": {service("", "  trafficdistribution: PreferSameZone\n"),
			"a.yaml:7: Service web: spec.trafficdistribution: unknown field, which API servers drop; did you mean spec.trafficDistribution?"},
		"a field in the wrong place": {service("", "  annotations: {a: b}\n"),
			"a.yaml:7: Service web: spec.annotations: unknown field, which API servers drop; did you mean metadata.annotations?"},
		"a misspelt field": {service("  anotations: {a: b}\n", ""),
			"a.yaml:5: Service web: metadata.anotations: unknown field, which API servers drop; did you mean metadata.annotations?"},
		"a field that is found once": {service("  trafficDistribution: PreferClose\n", ""),
			"a.yaml:5: Service web: metadata.trafficDistribution: unknown field, which API servers drop; did you mean spec.trafficDistribution?"},
		"a setting that is not a field": {service("", "  topologyMode: Auto\n"),
			"a.yaml:7: Service web: spec.topologyMode: unknown field, which API servers drop; is it an annotation?"},
		"an annotation with too little indentation": {service("  annotations:\n  vicinity.dev/topology-keys: a\n", ""),
			"a.yaml:6: Service web: metadata.vicinity.dev/topology-keys: unknown field, which API servers drop; " +
				"did you mean metadata.annotations[vicinity.dev/topology-keys]?"},
		"a field that is set twice": {service("  annotations: {a: b}\n  annotations: {c: d}\n", ""),
			"a.yaml:6: Service web: metadata.annotations: duplicate field"},
		"an annotation that is not a string": {service("  annotations:\n    a: b\n    c: true\n", ""),
			"a.yaml:7: Service web: metadata.annotations[c]: must be a string, not true; put it in quotes"},
		"a label that is not a string": {service("  labels: {a: 5}\n", ""),
			"a.yaml:5: Service web: metadata.labels[a]: must be a string, not 5; put it in quotes"},
		"a field of the wrong type": {service("", "  topologyKeys: rack\n"),
			"a.yaml:7: Service web: spec.topologyKeys: must be []string, not string"},
		"no name": {"apiVersion: v1\nkind: Service\nmetadata: {}\n", "a.yaml:3: Service: metadata.name: Required value"},
		"a template": {"kind: Service\nmetadata:\n  name: {{ .Release.Name }}\n",
			`a.yaml:3: invalid map key; a template must be rendered first, as 'helm template' does`},
		"a template between lines": {"apiVersion: v1\n{{- if .Values.on }}\nkind: Service\n{{- end }}\n",
			`a.yaml:4: could not find expected ':'; a template must be rendered first, as 'helm template' does`},
		"a template in quotes": {"apiVersion: v1\nkind: Service\nmetadata:\n  name: \"{{ .Release.Name }}\"\n",
			`a.yaml:4: Service {{ .Release.Name }}: metadata.name: a template must be rendered first, as 'helm template' does`},
		"text that is not YAML":      {"kind: Service\n\tname: bad\n", "a.yaml:2: found a tab character that violates indentation"},
		"UTF-16":                     {"\xff\xfek\x00", "a.yaml:1: the file is UTF-16; save it as UTF-8"},
		"control characters":         {"a: \x00\x01\n", "a.yaml:1: control characters are not allowed"},
		"not a number":               {"apiVersion: v1\nkind: Service\nx: .nan\n", "a.yaml:1: json: unsupported value: NaN"},
		"no kind":                    {"apiVersion: v1\nmetadata: {name: a}\n", "a.yaml:1: kind: Required value"},
		"lists that are nested deep": {deepLists, "a.yaml:1: lists are nested more than 8 deep"},
		"a name that would break lines": {"apiVersion: v1\nkind: Service\nmetadata: {name: \"a\\n\\u001b\", labels: {a: 5}}\n",
			`a.yaml:3: Service a\n\x1b: metadata.labels[a]: must be a string, not 5; put it in quotes`},
	} {
		t.Run(name, func(t *testing.T) {
			inFolder(t, map[string]string{"a.yaml": test.text})
			got := webhookCommand(t, "", "check", "a.yaml")
			want := test.want + " (error)"
			if !strings.Contains(want, " ... ") {
				want = test.want + " ...  (error)"
			}
			expectFindings(t, got, want)
			if got.status != 2 || !strings.Contains(got.stderr, ", 1 error") {
				t.Errorf("exit status %d, stderr %q; want 2 and an error", got.status, got.stderr)
			}
		})
	}
}

// deepLists are Lists nested more deeply than in any real file.
var deepLists = strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 12) + strings.Repeat("]}", 12)

func TestOddFilesAreReadAsTheyAre(t *testing.T) {
	bad := serviceText("web", badKeys)
	const oneDenied = "1 object checked, 1 denied, 0 warnings"
	compact := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"NAME","annotations":{"vicinity.dev/topology-keys":"rack,rack,*"}}}`
	first, second := strings.Replace(compact, "NAME", "a", 1), strings.Replace(compact, "NAME", "b", 1)
	for name, test := range map[string]struct {
		file, text string
		want       []string
		status     int
		summary    string
	}{
		"an empty file": {"a.yaml", "", nil, 0, "0 objects checked, 0 denied, 0 warnings"},
		"a byte order mark": {"a.yaml", "\xef\xbb\xbf" + bad, []string{"a.yaml:7: Service shop/web: " + badFinding + " ... (deny)"}, 1,
			oneDenied},
		"Windows line breaks": {"a.yaml", "# x\r\n" + strings.ReplaceAll(bad, "\n", "\r\n"),
			[]string{"a.yaml:8: Service shop/web: " + badFinding + " ... (deny)"}, 1, oneDenied},
		"anchors and merges": {"a.yaml", "apiVersion: v1\nkind: List\nitems:\n- &a\n  apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n" +
			"  spec: &spec\n    selector: {a: b}\n    topologyKeys: [rack]\n- <<: *a\n  metadata:\n    name: b\n", []string{
			"a.yaml:10: Service a: spec.topologyKeys: ... (warn)", "a.yaml:10: Service b: spec.topologyKeys: ... (warn)",
		}, 0, "2 objects checked, 0 denied, 2 warnings"},
		"a ServiceList": {"a.json", `{"apiVersion":"v1","kind":"ServiceList","items":[` + "\n" + `{"metadata":{"name":"a",` + "\n" +
			`"annotations":{"vicinity.dev/topology-keys":"rack,rack,*"}}}]}`,
			[]string{"a.json:3: Service a: " + badFinding + " ... (deny)"}, 1, oneDenied},
		"JSON values one after the other": {"a.json", first + "\n" + second,
			[]string{"a.json:1: Service a: ... (deny)", "a.json:2: Service b: ... (deny)"}, 1, "2 objects checked, 2 denied, 0 warnings"},
		"JSON values in a file of any name": {"objects", first + "\n" + second,
			[]string{"objects:1: Service a: ... (deny)", "objects:2: Service b: ... (deny)"}, 1, "2 objects checked, 2 denied, 0 warnings"},
		"flow style in a file of any name": {"objects",
			"{apiVersion: v1, kind: Service,\n metadata: {name: a}, spec: {topologyKeys: [a], selector: {b: c}}}",
			[]string{"objects:2: Service a: spec.topologyKeys: ... (warn)"}, 0, "1 object checked, 0 denied, 1 warning"},
		"a value of 5 MB": {"a.yaml", serviceText("web", strings.Repeat("x", 5<<20)),
			[]string{"a.yaml:7: Service shop/web: metadata.annotations[vicinity.dev/topology-keys]: ... (deny)"}, 1, oneDenied},
	} {
		t.Run(name, func(t *testing.T) {
			inFolder(t, map[string]string{test.file: test.text})
			got := webhookCommand(t, "", "check", "-f", test.file)
			if len(got.stdout) > 5000 {
				t.Fatalf("the output has %d bytes", len(got.stdout))
			}
			expectFindings(t, got, test.want...)
			expectStatusAndSummary(t, got, test.status, test.summary)
		})
	}
}

func TestEmptyStandardInputIsAnError(t *testing.T) {
	got := webhookCommand(t, " \n", "check", "-f", "-")
	expectFindings(t, got, "<stdin>: standard input is empty (error)")
	expectStatusAndSummary(t, got, 2, "0 objects checked, 0 denied, 0 warnings, 1 error")
}

func TestFoldersFilesAndStandardInputAreReadInTheirOrderAndOnce(t *testing.T) {
	inFolder(t, map[string]string{
		"deploy/b.yml": serviceText("b", badKeys), "deploy/sub/a.yaml": serviceText("a", badKeys),
		"deploy/.hidden.yaml": serviceText("h", badKeys),
		"deploy/README.md":    "no manifest", "z.yaml": serviceText("z", badKeys),
	})
	if err := os.Symlink("..", "deploy/loop"); err != nil {
		t.Fatal(err)
	}
	got := webhookCommand(t, serviceText("in", badKeys), "check", "-f", "z.yaml", "-f", "deploy", "./deploy/b.yml", "-")
	expectFindings(t, got, "z.yaml:7: Service shop/z: ... (deny)", "deploy/b.yml:7: Service shop/b: ... (deny)",
		"deploy/loop/z.yaml:7: Service shop/z: ... (deny)", "deploy/sub/a.yaml:7: Service shop/a: ... (deny)",
		"<stdin>:7: Service shop/in: ... (deny)")
	expectStatusAndSummary(t, got, 1, "5 objects checked, 5 denied, 0 warnings")
}

func TestWhatCannotBeReadIsReportedAndTheRestIsChecked(t *testing.T) {
	inFolder(t, map[string]string{
		"good.yaml": serviceText("good", hardKeys), "empty/README.md": "", "links/a.yaml": serviceText("a", goodKeys),
	})
	for name, target := range map[string]string{"links/dangling.yaml": "nowhere", "links/self.yaml": "self.yaml"} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	got := webhookCommand(t, "", "check", "missing.yaml", "empty", "links", "good.yaml", "good.yaml/x", "/proc/self/mem")
	expectFindings(t, got,
		"missing.yaml: cannot be read: no such file or directory (error)",
		"empty: no .yaml, .yml or .json files in this folder (error)",
		"links/dangling.yaml: cannot be read: no such file or directory (error)",
		"links/self.yaml: cannot be read: too many levels of symbolic links (error)",
		"good.yaml:7: Service shop/good: "+hardFinding+" ... (warn)",
		"good.yaml/x: cannot be read: not a directory (error)",
		"/proc/self/mem: cannot be read: input/output error (error)")
	expectStatusAndSummary(t, got, 2, "2 objects checked, 0 denied, 1 warning, 6 errors")
}

func TestDocumentsAfterABrokenOneAreChecked(t *testing.T) {
	got := webhookCommand(t, "a: [\n---\n"+serviceText("web", badKeys), "check", "-f", "-")
	expectFindings(t, got, "<stdin>:2: did not find expected node content (error)", "<stdin>:9: Service shop/web: "+badFinding+" ... (deny)")
	expectStatusAndSummary(t, got, 2, "1 object checked, 1 denied, 0 warnings, 1 error")
}

func TestConfigurationSetsTheAction(t *testing.T) {
	inFolder(t, map[string]string{
		"a.yaml": serviceText("web", badKeys) + "---\n" + serviceText("api", hardKeys),
		"config.yaml": "apiVersion: vicinity.dev/v1alpha1\nkind: TopologyAdmissionConfiguration\n" +
			"rules:\n  SVC004: \"off\"\n  SVC027: deny\n",
	})
	got := webhookCommand(t, "", "check", "--config", "config.yaml", "a.yaml")
	expectFindings(t, got, "a.yaml:19: Service shop/api: "+hardFinding+" ... [SVC027] (deny)")
	expectStatusAndSummary(t, got, 1, "2 objects checked, 1 denied, 0 warnings")
}

func TestJSONIsOneDocumentWithEveryField(t *testing.T) {
	inFolder(t, map[string]string{"a.yaml": serviceText("web", hardKeys), "b.yaml": "a: [", "c.yaml": "apiVersion: v1\nkind: Pod\n"})
	got := webhookCommand(t, "", "check", "-o", "json", "a.yaml", "b.yaml", "c.yaml", "missing.yaml")
	var document struct {
		Findings []map[string]any
		Summary  map[string]any
	}
	if err := json.Unmarshal([]byte(got.stdout), &document); err != nil {
		t.Fatalf("%v in:\n%s", err, got.stdout)
	}
	path := "metadata.annotations[vicinity.dev/topology-keys]"
	message, _ := document.Findings[0]["message"].(string)
	want := []map[string]any{
		{"file": "a.yaml", "line": 7., "kind": "Service", "namespace": "shop", "name": "web", "rule": "SVC027", "action": "warn", "path": path,
			"message": message},
		{"file": "b.yaml", "line": 2., "kind": "", "namespace": "", "name": "", "rule": "", "action": "error", "path": "",
			"message": `the value begins with "[", which means something else in YAML; quote it, or close the bracket`},
		{"file": "missing.yaml", "line": 0., "kind": "", "namespace": "", "name": "", "rule": "", "action": "error", "path": "",
			"message": "cannot be read: no such file or directory"},
	}
	if diff := cmp.Diff(want, document.Findings); diff != "" || !strings.HasPrefix(message, path+": ") {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	summary := map[string]any{"checked": 1., "skipped": 1., "denied": 0., "warnings": 1., "errors": 2.,
		"patches": 0., "filesSkipped": 0.}
	if diff := cmp.Diff(summary, document.Summary); diff != "" || got.status != 2 || got.stderr != "" {
		t.Errorf("status %d, stderr %q, summary (-want +got):\n%s", got.status, got.stderr, diff)
	}
	const nothing = "{\n  \"findings\": [],\n  \"skipped\": [],\n"
	if none := webhookCommand(t, "", "check", "-o", "json", "c.yaml"); !strings.HasPrefix(none.stdout, nothing) || none.status != 0 {
		t.Errorf("got %+v, want an empty list", none)
	}
}

func TestAWrongCommandLineOfCheckIsReportedWithItsUsage(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no file":              {nil, "-f FILE is required"},
		"a bad format":         {[]string{"-f", "a", "-o", "xml"}, `--output "xml" must be one of: text, json`},
		"standard input twice": {[]string{"-f", "-", "-"}, "-f - is given twice"},
	} {
		t.Run(name, func(t *testing.T) {
			inFolder(t, nil)
			got := webhookCommand(t, "", append([]string{"check"}, test.args...)...)
			usage := "usage: webhook check -f FILE... [flags]\nSee 'webhook check --help'.\n"
			if got.status != 2 || got.stdout != "" || !strings.Contains(got.stderr, test.want) || !strings.HasSuffix(got.stderr, usage) {
				t.Errorf("%+v; want status 2, %q and the usage", got, test.want)
			}
		})
	}
}

func TestHelpHasUsageAndExamples(t *testing.T) {
	for command, examples := range map[string][]string{
		"check": {"webhook check -f deploy/", "| webhook check -f -", ".pre-commit-config.yaml", "entry: webhook check",
			"require_serial: true", "kubectl kustomize deploy/prod | webhook check -f -", "--exclude GLOB", "** across folders",
			"The exit status is 0"},
		"rules":   {"webhook rules -o json"},
		"version": {"webhook version -o json"},
	} {
		got := webhookCommand(t, "", command, "--help")
		for _, part := range append(examples, "Usage:\n  webhook "+command, "Examples:\n", "Flags:\n") {
			if got.status != 0 || got.stderr != "" || !strings.Contains(got.stdout, part) {
				t.Errorf("%s --help: exit status %d, stderr %q, and the help lacks %q:\n%s", command, got.status, got.stderr, part, got.stdout)
			}
		}
	}
}

// TestManyServicesTakeTimeInProportion detects work per Service that grows with their number. It measures CPU time,
// because other processes may keep this machine busy.
func TestManyServicesTakeTimeInProportion(t *testing.T) {
	timeFor := func(count int) time.Duration {
		item := "- " + strings.ReplaceAll(strings.TrimSpace(serviceText("web", badKeys)), "\n", "\n  ") + "\n"
		text := "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat(item, count)
		start := cpuTime(t)
		got := webhookCommand(t, text, "check", "-f", "-")
		expectStatusAndSummary(t, got, 1, fmt.Sprintf("%d objects checked, %[1]d denied, 0 warnings", count))
		return cpuTime(t) - start
	}
	few, many := timeFor(1000), timeFor(10_000)
	if t.Logf("1,000 Services take %v, and 10,000 take %v", few, many); many > 40*few {
		t.Errorf("1,000 Services take %v, and 10,000 take %v", few, many)
	}
}

// cpuTime returns the CPU time that this process has used so far.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestAConfigurationThatCannotBeUsedIsReported(t *testing.T) {
	wrong := "apiVersion: vicinity.dev/v1alpha1\nkind: TopologyAdmissionConfiguration\nstrict: 1\nrule: {}\n"
	unknown := strings.Replace(wrong, "strict: 1", "rules: {SVC72: deny}", 1)
	inFolder(t, map[string]string{"wrong.yaml": wrong, "rule.yaml": unknown, "a.yaml": ""})
	for name, want := range map[string][]string{
		"missing.yaml": {"webhook: read the configuration: open missing.yaml: no such file or directory\n"},
		"rule.yaml":    {"rule.yaml:3: rules.SVC72", "; rule.yaml:4: rule: unknown field; did you mean rules?\n"},
		"wrong.yaml":   {"webhook: read the configuration: wrong.yaml:3: strict: must be bool"},
	} {
		got := webhookCommand(t, "", "check", "-f", "a.yaml", "--config", name)
		if got.status != 2 || got.stdout != "" || strings.Contains(got.stderr, "usage") {
			t.Errorf("%s: %+v; want status 2 without the usage", name, got)
		}
		for _, part := range want {
			if !strings.Contains(got.stderr, part) {
				t.Errorf("%s: %q lacks %q", name, got.stderr, part)
			}
		}
	}
}

// fullDisk accepts no data.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestWriteErrorIsNotADenial(t *testing.T) {
	warned := "{apiVersion: v1, kind: Service, metadata: {name: web, annotations: {openyurt.io/topologyKeys: x}}}"
	inFolder(t, map[string]string{"a.yaml": warned})
	for _, format := range []string{"text", "json"} {
		var stderr bytes.Buffer
		status := cli.Run(t.Context(), newRoot(), []string{"check", "a.yaml", "-o", format}, strings.NewReader(""), fullDisk{}, &stderr)
		if status != exitUnchecked || !strings.Contains(stderr.String(), "webhook: write the findings: no space left on device") {
			t.Errorf("%s: status %d, %s", format, status, stderr.String())
		}
	}
}
