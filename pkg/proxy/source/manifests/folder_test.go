package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFolderDeliversEverythingThenChanges(t *testing.T) {
	f := newTestFolder(t)
	f.write("a.yaml", serviceYAML("web", "10.96.0.1")+"---\n"+serviceYAML("db", "10.96.0.2"))
	f.write("deep/er/b.json", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`)
	f.write(".hidden.yaml", "broken: [")
	f.write(".git/c.yaml", "broken: [")
	f.write("notes.txt", "broken: [")
	steps := []struct {
		desc   string
		change func()
		want   []string
	}{
		{"the first load", func() {}, []string{"Node n1", "Service default/db", "Service default/web"}},
		{"nothing changes", func() {}, nil},
		{"one object of two changes", func() {
			f.write("a.yaml", serviceYAML("web", "10.96.0.9")+"---\n"+serviceYAML("db", "10.96.0.2"))
		}, []string{"Service default/web"}},
		{"the same text is written again", func() {
			f.write("a.yaml", serviceYAML("web", "10.96.0.9")+"---\n"+serviceYAML("db", "10.96.0.2"))
		}, nil},
		{"a comment is added", func() {
			f.write("a.yaml", "# hello\n"+serviceYAML("web", "10.96.0.9")+"---\n"+serviceYAML("db", "10.96.0.2"))
		}, nil},
		{"a file is renamed", func() {
			if err := os.Rename(filepath.Join(f.dir, "a.yaml"), filepath.Join(f.dir, "z.yaml")); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"a document is removed", func() { f.write("z.yaml", serviceYAML("db", "10.96.0.2")) }, []string{"Service default/web"}},
		{"a folder is removed", func() { f.remove("deep") }, []string{"Node n1"}},
		{"a Service becomes headless", func() { f.write("z.yaml", serviceYAML("db", "None")) }, []string{"Service default/db"}},
		{"a Service that was not served is removed", func() { f.remove("z.yaml") }, nil},
	}
	for _, step := range steps {
		step.change()
		if diff := cmp.Diff(step.want, f.load()); diff != "" {
			t.Errorf("after %s, changed objects (-want +got):\n%s", step.desc, diff)
		}
		f.wantProblems()
	}
}

func TestFolderFollowsLinksWithoutLoops(t *testing.T) {
	f := newTestFolder(t)
	f.write("..2026_01/web.yaml", serviceYAML("web", "10.96.0.1"))
	f.write("sub/db.yaml", serviceYAML("db", "10.96.0.2"))
	for name, target := range map[string]string{
		"..data": "..2026_01", "web.yaml": "..data/web.yaml", "sub/loop": "..", "again": "sub", "dir.yaml": "sub",
	} {
		if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"Service default/db", "Service default/web"}, f.load()); diff != "" {
		t.Errorf("changed objects (-want +got):\n%s", diff)
	}
	f.wantProblems()
}

func TestFolderReportsASliceUntilItsServiceAppears(t *testing.T) {
	f := newTestFolder(t)
	f.write("slice.yaml", sliceYAML("web-1", "web", "10.244.0.5"))
	f.load()
	f.wantProblems(`slice.yaml: EndpointSlice default/web-1: metadata.labels[kubernetes.io/service-name]: ` +
		`Not found: "web": there is no such Service in namespace "default"`)
	if _, exists := f.state["EndpointSlice default/web-1"]; !exists {
		t.Error("the slice was not delivered")
	}
	for name, service := range map[string]string{
		"a Service":          serviceYAML("web", "10.96.0.1"),
		"a headless Service": serviceYAML("web", "None"),
		"an invalid Service": serviceYAML("web", "x"),
		"a Service of another proxy": strings.Replace(serviceYAML("web", "10.96.0.1"), "spec:",
			"  labels: {service.kubernetes.io/service-proxy-name: x}\nspec:", 1),
	} {
		f.write("web.yaml", service)
		f.load()
		if slices.ContainsFunc(f.problems, func(p string) bool { return strings.Contains(p, "no such Service") }) {
			t.Errorf("with %s, problems = %q", name, f.problems)
		}
		f.remove("web.yaml")
		f.load()
		if len(f.problems) != 1 {
			t.Errorf("after %s, problems = %q; want that there is no such Service", name, f.problems)
		}
	}
}
