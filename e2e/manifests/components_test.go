package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// mark is a word that identifies a component or an overlay, with its number of occurrences without it and with it.
type mark struct {
	text          string
	without, with int
}

// marks are those of the components.
var marks = map[string]mark{
	"certificate-files": {"- --cert-source=files\n", 0, 1},
	"topology-slices":   {"- --publish-topology\n", 0, 1},
	"demand":            {"- --measure-demand\n", 0, 1},
}

// overlays are the possible bases of a kustomization with components, with their marks.
var overlays = map[string]mark{
	".":                 {},
	"enforce":           {"failurePolicy: Fail\n", 0, 2},
	"default-on-update": {"- UPDATE\n", 2, 3},
}

// TestTheWebhooksComponentsCanBeCombined builds a kustomization of each overlay and selection of components, as in the
// README, and of enforce with the README's patch for both overlays.
func TestTheWebhooksComponentsCanBeCombined(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(folder, "webhook", "components"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(marks) {
		t.Fatalf("%d components exist, %d are tested", len(entries), len(marks))
	}
	for choice := range 1 << len(entries) {
		var chosen []string
		for i, entry := range entries {
			if choice&(1<<i) != 0 {
				chosen = append(chosen, entry.Name())
			}
		}
		for overlay := range overlays {
			t.Run(strings.Join(append([]string{overlay}, chosen...), " and "), func(t *testing.T) {
				text := kubectl(t, "kustomize", kustomization(t, overlay, chosen, ""))
				checkMarks(t, text, marks, chosen)
				checkMarks(t, text, overlays, []string{overlay})
			})
		}
	}
	both := "patches:\n" + yamlIn(t, "webhook/README.md", "- target: {kind: MutatingWebhookConfiguration, name: vicinity-webhook}")
	checkMarks(t, kubectl(t, "kustomize", kustomization(t, "enforce", nil, both)), overlays, []string{"enforce", "default-on-update"})
}

// checkMarks checks that a text has the marks of the selected components, and of no others.
func checkMarks(t *testing.T, text string, marks map[string]mark, chosen []string) {
	t.Helper()
	for name, mark := range marks {
		want := mark.without
		if slices.Contains(chosen, name) {
			want = mark.with
		}
		if got := strings.Count(text, mark.text); mark.text != "" && got != want {
			t.Errorf("%s: %q occurs %d times, want %d", name, mark.text, got, want)
		}
	}
}

// kustomization returns a folder with a kustomization that adds components and more lines to an overlay of the webhook.
// kustomize requires relative paths.
func kustomization(t *testing.T, overlay string, components []string, more string) string {
	t.Helper()
	dir := t.TempDir()
	webhook, err := filepath.Abs(filepath.Join(folder, "webhook"))
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(dir, webhook)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- %s/%s\n%scomponents:\n",
		relative, overlay, more)
	for _, name := range components {
		text += fmt.Sprintf("- %s/components/%s\n", relative, name)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTheNetworkPolicyNamesThePortsOfTheDeployment compares port names, because a name that no container has would
// allow nothing, and API servers would be blocked.
func TestTheNetworkPolicyNamesThePortsOfTheDeployment(t *testing.T) {
	var policy networkingv1.NetworkPolicy
	var deployed appsv1.Deployment
	text := kubectl(t, "kustomize", filepath.Join(folder, "webhook"))
	parseOnly(t, text, "NetworkPolicy", &policy)
	parseOnly(t, text, "Deployment", &deployed)
	isOpen := map[string]bool{}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			isOpen[port.Port.StrVal] = len(rule.From) == 0 // true if open to all clients
		}
	}
	want := map[string]bool{}
	for _, port := range deployed.Spec.Template.Spec.Containers[0].Ports {
		want[port.Name] = port.Name != "metrics"
	}
	if diff := cmp.Diff(want, isOpen); diff != "" {
		t.Errorf("open ports, true if open to all clients (-want +got):\n%s", diff)
	}
	chosen := policy.Spec.PodSelector.MatchLabels
	for key, value := range chosen {
		if deployed.Spec.Template.Labels[key] != value {
			t.Errorf("the policy selects pods with %s=%s, the Deployment's pods have labels %v", key, value, deployed.Spec.Template.Labels)
		}
	}
	if policy.Namespace != deployed.Namespace || len(chosen) == 0 {
		t.Errorf("the policy is in namespace %q and selects %v", policy.Namespace, chosen)
	}
}

// parseOnly parses the only object of a kind, strictly.
func parseOnly(t *testing.T, text, kind string, into any) {
	t.Helper()
	found := 0
	for document := range strings.SplitSeq(text, "\n---\n") {
		var header metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &header); err != nil {
			t.Fatal(err)
		}
		if header.Kind != kind {
			continue
		}
		found++
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Fatal(err)
		}
	}
	if found != 1 {
		t.Fatalf("there are %d objects of kind %s, want one", found, kind)
	}
}

// TestAComponentOfTheProxyAddsItsLinesAndNoOthers checks that a component has the effect that README.md describes.
func TestAComponentOfTheProxyAddsItsLinesAndNoOthers(t *testing.T) {
	dir := t.TempDir()
	absolute, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Rel(dir, absolute)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\n", manifests)
	render := func(more string) string {
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text+more), 0o600); err != nil {
			t.Fatal(err)
		}
		return kubectl(t, "kustomize", dir)
	}
	without := render("")
	inComponents := func(name string) string { return fmt.Sprintf("components: [%s/%s]\n", manifests, name) }
	for added, blocks := range map[string][]string{
		yamlIn(t, "distributions.md", "- target: {kind: DaemonSet, name: vicinity-proxy}"): {"        seLinuxOptions:\n          type: spc_t\n"},
		inComponents("xds"): {
			"        - --xds-bind-address=0.0.0.0:18000\n",
			"---\n" + kubectl(t, "kustomize", filepath.Join(folder, "xds")),
		},
		inComponents("node-condition"): {
			"        - --node-condition\n",
			"- apiGroups:\n  - \"\"\n  resources:\n  - nodes/status\n  verbs:\n  - patch\n",
			"---\n" + kubectl(t, "kustomize", filepath.Join(folder, "node-condition")),
		},
	} {
		with := render(added)
		rest := with
		for _, block := range blocks {
			if strings.Count(rest, block) != 1 {
				t.Errorf("with %s this occurs %d times, want once:\n%s", added, strings.Count(rest, block), block)
			}
			rest = strings.Replace(rest, block, "", 1)
		}
		if rest != without {
			t.Errorf("%s adds more than its lines (-without +with):\n%s", added, cmp.Diff(without, with))
		}
	}
}
