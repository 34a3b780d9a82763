package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// deployFiles returns the files of a typical folder: a chart, a base and an overlay of kustomize, and a separate file.
func deployFiles() map[string]string {
	return map[string]string{
		"deploy/shop/Chart.yaml":             "apiVersion: v2\nname: shop\nversion: 0.1.0\n",
		"deploy/shop/values.yaml":            "service: {annotations: {vicinity.dev/topology-keys: a b}}\n",
		"deploy/shop/values-prod.yaml":       "replicas: 3\n",
		"deploy/shop/ci/many-values.yaml":    "replicas: 5\n",
		"deploy/shop/templates/service.yaml": "kind: Service\nmetadata: {name: {{ .Release.Name }}}\n",
		"deploy/shop/crds/crd.yaml":          "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n",
		"deploy/base/kustomization.yaml":     "resources:\n- service.yaml\n",
		"deploy/base/service.yaml":           serviceText("web", goodKeys),
		"deploy/prod/kustomization.yml": `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base]
patches:
- path: patches/remove.yaml
- path: patches/wrong.yaml
  target: {kind: Service}
- path: patches/operations.json
  target: {kind: Service}
- target: {kind: Service}
  patch: |-
    apiVersion: v1
    kind: Service
    metadata:
      name: any
      annotations:
        vicinity.dev/max-load: "12"
- target: {kind: Deployment}
  patch: '[{"op": "remove", "path": "/spec/replicas"}]'
patchesStrategicMerge: [replicas.yaml]
configMapGenerator:
- {name: a, files: [app.yaml, log.yaml=conf/log.yaml], envs: [env.yaml]}
replacements: [{path: replacement.yaml}]
configurations: [names.yaml]
helmCharts: [{name: a, valuesFile: of-a.yaml}]
`,
		"deploy/prod/patches/remove.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n" +
			"  annotations: {vicinity.dev/topology-keys: null, vicinity.dev/old: null}\n  labels: {vicinity.dev/admission: null}\n",
		"deploy/prod/patches/wrong.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n  annotations:\n" +
			"    vicinity.dev/topology-keys: a b\n    vicinity.dev/clients: shop/api\nspec: {externalTrafficPolicy: Local}\n",
		"deploy/prod/patches/operations.json": `[{"op":"replace","path":"/metadata/annotations/vicinity.dev~1topology-keys","value":"a b"}]`,
		"deploy/prod/replicas.yaml":           "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3}\n",
		"deploy/prod/app.yaml":                "log: debug\n",
		"deploy/prod/conf/log.yaml":           "- a\n",
		"deploy/prod/env.yaml":                "A=b\n",
		"deploy/prod/replacement.yaml":        "source: {}\n",
		"deploy/prod/names.yaml":              "nameReference: []\n",
		"deploy/prod/of-a.yaml":               "a: b\n",
		"deploy/operations.yaml":              "- op: remove\n  path: /metadata/annotations\n",
	}
}

// deployFindings are the findings in deployed. All of them are in patches.
var deployFindings = []string{
	`deploy/prod/kustomization.yml:17: Service any: metadata.annotations[vicinity.dev/max-load]: Invalid value: "12": ... [SVC011] (deny)`,
	`deploy/prod/patches/wrong.yaml:5: Service: metadata.annotations[vicinity.dev/topology-keys]: Invalid value: "a b": ... [SVC003] (deny)`,
}

func TestTypicalFolderIsChecked(t *testing.T) {
	inFolder(t, deployFiles())
	got := webhookCommand(t, "", "check", "-f", "deploy")
	expectFindings(t, got, deployFindings...)
	const summary = "1 object checked, 3 patches in part, 2 denied, 0 warnings; 1 skipped; 16 files skipped: " +
		"2 kustomizations, 3 patches, " +
		"6 inputs of kustomizations, 5 files of Helm charts"
	expectStatusAndSummary(t, got, 1, summary)

	verbose := webhookCommand(t, "", "check", "-v", "-f", "deploy", "deploy/shop/values.yaml")
	for file, reason := range map[string]string{
		"deploy/shop/values-prod.yaml":   "a file of a Helm chart; check what 'helm template' prints",
		"deploy/prod/replicas.yaml":      "a patch that no rule checks",
		"deploy/operations.yaml":         "a patch that no rule checks",
		"deploy/base/kustomization.yaml": "a kustomization; check what 'kubectl kustomize' prints",
		"deploy/prod/conf/log.yaml":      "input of a kustomization, not a manifest",
	} {
		if line := file + ": skipped: " + reason + "\n"; !strings.Contains(verbose.stderr, line) {
			t.Errorf("-v prints\n%s\nwithout %q", verbose.stderr, line)
		}
	}
	if lines := strings.Count(verbose.stderr, "\n"); lines != 17 || !strings.HasSuffix(verbose.stderr, summary+"\n") {
		t.Errorf("-v has %d lines:\n%s", lines, verbose.stderr)
	}
}

// skippedIn returns the files that a command line skips, with their roles.
func skippedIn(t *testing.T, args ...string) map[string]string {
	t.Helper()
	got := webhookCommand(t, "", append([]string{"check", "-o", "json"}, args...)...)
	var document struct {
		Skipped []struct{ File, Role, Reason string }
		Summary struct{ FilesSkipped, Errors int }
	}
	if err := json.Unmarshal([]byte(got.stdout), &document); err != nil || document.Summary.Errors > 0 {
		t.Errorf("%v: %v: %s", args, err, got.stdout)
	}
	roles := map[string]string{}
	for _, file := range document.Skipped {
		roles[file.File] = file.Role
		if file.Reason == "" {
			t.Errorf("%s is skipped without a reason", file.File)
		}
	}
	if document.Summary.FilesSkipped != len(roles) {
		t.Errorf("the summary counts %d files, and the list has %d", document.Summary.FilesSkipped, len(roles))
	}
	return roles
}

// TestFileRoleDoesNotDependOnTheArgument: a pre-commit hook passes the names of some files, without the
// files that determine their roles.
func TestFileRoleDoesNotDependOnTheArgument(t *testing.T) {
	inFolder(t, deployFiles())
	want := skippedIn(t, "-f", "deploy")
	var findings []string
	alone := map[string]string{}
	for _, file := range slices.Sorted(maps.Keys(deployFiles())) {
		maps.Copy(alone, skippedIn(t, file))
		findings = append(findings, webhookCommand(t, "", "check", file).stdout)
	}
	if diff := cmp.Diff(want, alone); diff != "" {
		t.Errorf("roles of files in their folder (-) and alone (+):\n%s", diff)
	}
	expectFindings(t, checkOutcome{stdout: strings.Join(findings, "")}, deployFindings...)
	t.Chdir("deploy/prod/patches")
	if got := skippedIn(t, "operations.json"); got["operations.json"] != "patch" {
		t.Errorf("from within its folder the patch is %q", got["operations.json"])
	}
	expectStatusAndSummary(t, webhookCommand(t, "", "check", "remove.yaml"), 0, "0 objects checked, 1 patch in part, 0 denied, 0 warnings")
}

func TestAnUnknownKindStaysAnError(t *testing.T) {
	const advice = "; a file that is not a manifest can be skipped with --exclude (error)"
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"values without a chart": {map[string]string{"d/values.yaml": "a: b\n"}, []string{"d/values.yaml:1: kind: Required value" + advice}},
		"a template without a chart": {map[string]string{"d/templates/a.yaml": "a: {{ .b }}\n"},
			[]string{"d/templates/a.yaml:1: invalid map key; a template must be rendered first, as 'helm template' does (error)"}},
		"a list that is not a patch": {map[string]string{"d/a.yaml": "- op: renew\n  path: /a\n"},
			[]string{"d/a.yaml:1: must be a Kubernetes object, with apiVersion, kind and metadata" + advice}},
		"operations without a path": {map[string]string{"d/a.json": `[{"op":"remove"}]`},
			[]string{"d/a.json:1: must be a Kubernetes object, with apiVersion, kind and metadata" + advice}},
		"an empty list": {map[string]string{"d/a.json": `[]`},
			[]string{"d/a.json:1: must be a Kubernetes object, with apiVersion, kind and metadata" + advice}},
		"a kustomization that is not YAML": {map[string]string{"d/kustomization.yaml": "a: [\n"},
			[]string{"d/kustomization.yaml:2: did not find expected node content (error)"}},
		"a kustomization without a list of patches": {map[string]string{"d/kustomization.yaml": "patches: 5\n"},
			[]string{"d/kustomization.yaml:1: kind: Required value" + advice}},
		"a patch that is not YAML": {map[string]string{"d/kustomization.yaml": "patches: [{path: a.yaml}]\n", "d/a.yaml": "a: [\n"},
			[]string{"d/a.yaml:2: did not find expected node content (error)"}},
		"a patch with a misspelt field": {map[string]string{"d/kustomization.yaml": "patches: [{path: a.yaml}]\n",
			"d/a.yaml": "apiVersion: v1\nkind: Service\nspec:\n  trafficdistribution: PreferSameZone\n"},
			[]string{"d/a.yaml:4: Service: spec.trafficdistribution: unknown field, which API servers drop; " +
				"did you mean spec.trafficDistribution? (error)"}},
	} {
		t.Run(name, func(t *testing.T) {
			inFolder(t, test.files)
			got := webhookCommand(t, "", "check", "-f", "d")
			expectFindings(t, got, test.want...)
			if got.status != 2 {
				t.Errorf("exit status %d, stderr %q; want 2", got.status, got.stderr)
			}
		})
	}
}

// TestKustomizationMetadataIsChecked: annotations and labels are checked as if they were set on a Service or a
// Namespace, and each finding has their line.
func TestKustomizationMetadataIsChecked(t *testing.T) {
	inFolder(t, map[string]string{"d/kustomization.yaml": `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
commonAnnotations:
  vicinity.dev/topology-keys: a b
  vicinity.dev/max-load: 120
  vicinity.dev/default-topology-keys: "*, a"
  owner: shop
commonLabels:
  vicinity.dev/topology-keys: zone
labels:
- pairs: {app: web}
- includeSelectors: true
  pairs:
    app: web
    service.kubernetes.io/topology-mode: Auto
`})
	got := webhookCommand(t, "", "check", "d")
	expectStatusAndSummary(t, got, 2, "0 objects checked, 5 patches in part, 2 denied, 2 warnings, 1 error; 1 file skipped: 1 kustomization")
	var lines []string
	for line := range strings.Lines(got.stdout) {
		place, _, _ := strings.Cut(line, ": Invalid value")
		place, _, _ = strings.Cut(place, "; ")
		lines = append(lines, strings.TrimSpace(place))
	}
	want := []string{
		"d/kustomization.yaml:4: Kustomization: commonAnnotations[vicinity.dev/topology-keys]",
		"d/kustomization.yaml:5: Kustomization: commonAnnotations[vicinity.dev/max-load]: must be a string, not 120",
		"d/kustomization.yaml:6: Kustomization: commonAnnotations[vicinity.dev/default-topology-keys]",
		"d/kustomization.yaml:9: Kustomization: commonLabels[vicinity.dev/topology-keys]: has no effect as a label",
		"d/kustomization.yaml:15: Kustomization: labels[1].pairs[service.kubernetes.io/topology-mode]: has no effect as a label",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestAResourceIsAnObject: a resource is checked in full, even if its kustomization also uses it in another way. A file
// with the name of a kustomization but of another kind is an object.
func TestAResourceIsAnObject(t *testing.T) {
	inFolder(t, map[string]string{
		"d/kustomization.yaml": "resources: [a.yaml]\nconfigMapGenerator: [{files: [a.yaml]}]\n",
		"d/a.yaml":             serviceText("web", badKeys),
		"flux/kustomization.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n" +
			"spec: {patches: [{path: a.yaml}]}\n",
		"flux/a.yaml": serviceText("api", badKeys),
	})
	got := webhookCommand(t, "", "check", "d", "flux")
	expectFindings(t, got, "d/a.yaml:7: Service shop/web: ... (deny)", "flux/a.yaml:7: Service shop/api: ... (deny)")
	expectStatusAndSummary(t, got, 1, "2 objects checked, 2 denied, 0 warnings; 1 skipped; 1 file skipped: 1 kustomization")
}

func TestExcludedFilesAreSkipped(t *testing.T) {
	files := []string{"deploy/a.yaml", "deploy/dev/a.yaml", "deploy/dev/test/b.yaml", "deploy/prod/a.yaml", "deploy/prod/test/c.yml"}
	for pattern, want := range map[string]string{
		"a.yaml":            "deploy/a.yaml deploy/dev/a.yaml deploy/prod/a.yaml",
		"*.yml":             "deploy/prod/test/c.yml",
		"test":              "deploy/dev/test/b.yaml deploy/prod/test/c.yml",
		"test/":             "deploy/dev/test/b.yaml deploy/prod/test/c.yml",
		"./deploy/dev":      "deploy/dev/a.yaml deploy/dev/test/b.yaml",
		"deploy/*/a.yaml":   "deploy/dev/a.yaml deploy/prod/a.yaml",
		"deploy/*.yaml":     "deploy/a.yaml",
		"deploy/**/?.yaml":  "deploy/a.yaml deploy/dev/a.yaml deploy/dev/test/b.yaml deploy/prod/a.yaml",
		"{dev,prod}/[a-b]*": "deploy/dev/a.yaml deploy/prod/a.yaml",
		"/deploy":           "",
		"eploy":             "",
	} {
		texts := map[string]string{}
		for _, file := range files {
			texts[file] = serviceText("web", goodKeys)
		}
		inFolder(t, texts)
		for _, args := range [][]string{{"deploy"}, files} {
			got := skippedIn(t, append(args, "--exclude", pattern)...)
			if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != want {
				t.Errorf("%v with --exclude %s: %q are skipped, want %q", args, pattern, names, want)
			}
		}
	}
}

func TestExcludedFilesAreNotReadAndCountedOnce(t *testing.T) {
	inFolder(t, map[string]string{"d/a.yaml": "a: [", "d/b.yaml": serviceText("web", goodKeys)})
	if err := os.Symlink("nowhere", "d/dangling.yaml"); err != nil {
		t.Fatal(err)
	}
	got := webhookCommand(t, "", "check", "-v", "-f", "d", "d/a.yaml", "--exclude", "a.yaml", "--exclude", "d/dang*")
	expectStatusAndSummary(t, got, 0, "d/dangling.yaml: skipped: excluded by d/dang*\nd/a.yaml: skipped: excluded by a.yaml\n"+
		"1 object checked, 0 denied, 0 warnings; 2 files skipped: 2 excluded")
	wrong := webhookCommand(t, "", "check", "d", "--exclude", "[a", "--exclude", "")
	hasErrors := strings.Contains(wrong.stderr, `--exclude "[a" is not a pattern`) &&
		strings.Contains(wrong.stderr, `--exclude "" is not a pattern`)
	if wrong.status != 2 || !hasErrors {
		t.Errorf("%+v; want status 2 and both patterns", wrong)
	}
}
