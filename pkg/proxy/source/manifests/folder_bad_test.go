package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFolderKeepsTheLastKnownGoodVersion(t *testing.T) {
	f := newTestFolder(t)
	good := serviceYAML("web", "10.96.0.1")
	f.write("a.yaml", good)
	f.load()

	f.write("a.yaml", strings.Replace(good, "port: 80", "port: 70000", 1))
	if changed := f.load(); changed != nil {
		t.Errorf("an invalid version changed %v", changed)
	}
	f.wantService("10.96.0.1")
	f.wantProblems(`a.yaml: Service default/web: spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`)

	f.load()
	f.wantService("10.96.0.1")
	if len(f.problems) != 1 {
		t.Errorf("problems = %q; want the same one", f.problems)
	}

	f.write("a.yaml", serviceYAML("web", "10.96.0.2"))
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems()

	f.write("a.yaml", "apiVersion: v1\nkind: Service\n\tbroken")
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems(`a.yaml: line 3: found a tab character that violates indentation`)

	f.write("a.yaml", "# nothing any more\n")
	f.load()
	f.wantService("")
	f.wantProblems()
}

func TestFolderKeepsObjectsOfAnEmptiedFile(t *testing.T) {
	const emptied = "a.yaml: cannot be read: the file is empty, perhaps because it is still being written; delete it to remove its objects"
	const broken = "a.yaml: must be a Kubernetes object, with apiVersion, kind and metadata (document at line 1)"
	f := newTestFolder(t)
	f.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f.write("never-held-anything.yaml", "")
	f.load()
	f.wantProblems()
	for _, step := range []struct {
		desc      string
		change    func()
		clusterIP string
		problems  []string
	}{
		{"it is emptied", func() { f.write("a.yaml", "") }, "10.96.0.1", []string{emptied}},
		{"no further change", func() {}, "10.96.0.1", []string{emptied}},
		{"the same text is written", func() { f.write("a.yaml", serviceYAML("web", "10.96.0.1")) }, "10.96.0.1", nil},
		{"it is emptied again", func() { f.write("a.yaml", "") }, "10.96.0.1", []string{emptied}},
		{"another text is written", func() { f.write("a.yaml", serviceYAML("web", "10.96.0.2")) }, "10.96.0.2", nil},
		{"it is emptied for the third time", func() { f.write("a.yaml", "") }, "10.96.0.2", []string{emptied}},
		{"it becomes invalid", func() { f.write("a.yaml", "kind") }, "10.96.0.2", []string{broken}},
		{"it is emptied after it became invalid", func() { f.write("a.yaml", "") }, "10.96.0.2", []string{emptied, broken}},
		{"it is deleted", func() { f.remove("a.yaml") }, "", nil},
	} {
		step.change()
		f.load()
		t.Run("after "+step.desc, func(t *testing.T) {
			f.t = t
			f.wantService(step.clusterIP)
			f.wantProblems(step.problems...)
		})
		f.t = t
	}
}

func TestFolderSkipsAnObjectThatWasNeverValid(t *testing.T) {
	f := newTestFolder(t)
	f.write("a.yaml", strings.Replace(serviceYAML("web", "10.96.0.1"), "port: 80", "port: 0", 1)+"---\n"+serviceYAML("db", "10.96.0.2"))
	if diff := cmp.Diff([]string{"Service default/db"}, f.load()); diff != "" {
		t.Errorf("changed objects (-want +got):\n%s", diff)
	}
	f.wantProblems(`a.yaml: Service default/web: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`)
	f.remove("a.yaml")
	f.load()
	f.wantProblems()
}

func TestFolderKeepsObjectsOfAnUnreadableDocument(t *testing.T) {
	f := newTestFolder(t)
	f.write("a.yaml", serviceYAML("web", "10.96.0.1")+"---\n"+serviceYAML("db", "10.96.0.2"))
	f.load()
	f.write("a.yaml", "kind: [\n---\n"+serviceYAML("db", "10.96.0.3"))
	if diff := cmp.Diff([]string{"Service default/db"}, f.load()); diff != "" {
		t.Errorf("changed objects (-want +got):\n%s", diff)
	}
	f.wantService("10.96.0.1")
	f.write("b.yaml", serviceYAML("web", "10.96.0.7"))
	f.load()
	f.wantService("10.96.0.1")
	f.write("a.yaml", serviceYAML("db", "10.96.0.3"))
	f.load()
	f.wantService("10.96.0.7")
	f.wantProblems()
}

func TestFolderKeepsAnObjectThatMovedAndBecameInvalid(t *testing.T) {
	f := newTestFolder(t)
	f.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f.load()
	f.remove("a.yaml")
	f.write("b.yaml", serviceYAML("web", "10.96.0.300"))
	f.load()
	f.wantService("10.96.0.1")
	f.wantProblems(`b.yaml: Service default/web: spec.clusterIP: Invalid value: "10.96.0.300": ` +
		`must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`)
}
