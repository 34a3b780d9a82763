package manifests_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// kustomizations returns all folders that `kubectl apply -k` accepts, without components, which are parts of others.
func kustomizations(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		component := regexp.MustCompile("/(components|monitoring|dns)/").MatchString(path)
		if err == nil && !component && strings.EqualFold(strings.TrimSuffix(entry.Name(), ".yaml"), "kustomization") {
			found = append(found, filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 8 {
		t.Fatalf("kustomizations: %v", found)
	}
	return found
}

// TestEveryObjectHasTheRecommendedLabels also checks that no pod gets environment variables for the Services of its
// namespace.
func TestEveryObjectHasTheRecommendedLabels(t *testing.T) {
	for _, dir := range kustomizations(t) {
		for text := range strings.SplitSeq(kubectl(t, "kustomize", dir), "\n---\n") {
			var object unstructured.Unstructured
			if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
				t.Fatal(err)
			}
			if object.Object == nil {
				continue // a component that only changes other objects
			}
			what := dir + ": " + object.GetKind() + " " + object.GetName()
			checkLabels(t, what, &object)
			template, found, err := unstructured.NestedMap(object.Object, "spec", "template")
			if err != nil || !found {
				continue
			}
			pod := unstructured.Unstructured{Object: template}
			checkLabels(t, what+"'s pods", &pod)
			if links, found, err := unstructured.NestedBool(template, "spec", "enableServiceLinks"); err != nil || !found || links {
				t.Errorf("%s: enableServiceLinks is not false", what)
			}
		}
	}
}

func checkLabels(t *testing.T, what string, object metav1.Object) {
	t.Helper()
	labels := object.GetLabels()
	for _, key := range []string{"name", "component", "part-of"} {
		if labels["app.kubernetes.io/"+key] == "" {
			t.Errorf("%s has no label app.kubernetes.io/%s: %v", what, key, labels)
		}
	}
}
