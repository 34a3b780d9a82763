package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// marks are words by which a component shows, and how often they are there without it and with it.
var marks = map[string]struct {
	word          string
	without, with int
}{
	"enforce":           {"failurePolicy: Fail\n", 0, 2},
	"default-on-update": {"- UPDATE\n", 2, 3},
	"certificate-files": {"- --cert-source=files\n", 0, 1},
}

// TestTheWebhooksComponentsGoTogether makes a kustomization of each choice of components, as the README has one.
func TestTheWebhooksComponentsGoTogether(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(folder, "webhook", "components"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(marks) {
		t.Fatalf("there are %d components, and %d are tried", len(entries), len(marks))
	}
	for choice := range 1 << len(entries) {
		var chosen []string
		for i, entry := range entries {
			if choice&(1<<i) != 0 {
				chosen = append(chosen, entry.Name())
			}
		}
		t.Run(strings.Join(chosen, " and "), func(t *testing.T) {
			text := kubectl(t, "kustomize", kustomization(t, chosen))
			for name, mark := range marks {
				want := mark.without
				if slices.Contains(chosen, name) {
					want = mark.with
				}
				if got := strings.Count(text, mark.word); got != want {
					t.Errorf("%s: %q is there %d times, want %d", name, mark.word, got, want)
				}
			}
		})
	}
}

// kustomization is a folder with one that adds components to the webhook. kustomize wants relative paths.
func kustomization(t *testing.T, components []string) string {
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
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- %s\ncomponents:\n", relative)
	for _, name := range components {
		text += fmt.Sprintf("- %s/components/%s\n", relative, name)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
