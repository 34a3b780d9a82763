package source

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testFolder is a folder of manifests and what a consumer has made of its updates.
type testFolder struct {
	t        *testing.T
	dir      string
	folder   Folder
	state    map[string]string // object -> what tells its versions apart
	problems []string
}

func newTestFolder(t *testing.T) *testFolder {
	return &testFolder{t: t, dir: t.TempDir(), state: make(map[string]string)}
}

func (f *testFolder) write(name, text string) {
	f.t.Helper()
	full := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *testFolder) remove(name string) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// load loads the folder and applies the update, as the proxy does. It returns the objects that the update names.
func (f *testFolder) load() []string {
	f.t.Helper()
	update, err := f.folder.Load(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.apply(update)
}

func (f *testFolder) apply(update Update) []string {
	var changed []string
	set := func(key, value string, gone bool) {
		changed = append(changed, key)
		if f.state[key] = value; gone {
			delete(f.state, key)
		}
	}
	for name, service := range update.Change.Services {
		value := ""
		if service != nil {
			value = fmt.Sprint(service.ClusterIPs, service.Ports)
		}
		set("Service "+name.String(), value, service == nil)
	}
	for name, slice := range update.Change.Slices {
		value := ""
		if slice != nil {
			value = fmt.Sprint(slice.Service, slice.Endpoints)
		}
		set("EndpointSlice "+name.String(), value, slice == nil)
	}
	for name, node := range update.Change.Nodes {
		value := ""
		if node != nil {
			value = fmt.Sprint(node.Labels)
		}
		set("Node "+name, value, node == nil)
	}
	for name, prefixes := range update.Change.ServiceCIDRs {
		set("ServiceCIDR "+name, fmt.Sprint(prefixes), prefixes == nil)
	}
	f.problems = nil
	for _, problem := range update.Problems {
		f.problems = append(f.problems, problem.String())
	}
	slices.Sort(changed)
	return changed
}

// wantService asserts which version of Service default/web is in force; empty for none.
func (f *testFolder) wantService(clusterIP string) {
	f.t.Helper()
	want := ""
	if clusterIP != "" {
		want = fmt.Sprintf("[%s] [{ TCP 80 0}]", clusterIP)
	}
	if got := f.state["Service default/web"]; got != want {
		f.t.Errorf("Service default/web is %q, want %q", got, want)
	}
}

func (f *testFolder) wantProblems(want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.problems); diff != "" {
		f.t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestFolderHandsOverEverythingFirstAndThenOnlyWhatChanged(t *testing.T) {
	f := newTestFolder(t)
	f.write("a.yaml", serviceYAML("web", "10.96.0.1")+"---\n"+serviceYAML("db", "10.96.0.2"))
	f.write("deep/er/b.json", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`)
	f.write(".hidden.yaml", "broken: [")
	f.write(".git/c.yaml", "broken: [")
	f.write("notes.txt", "broken: [")
	steps := []struct {
		does   string
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
			t.Errorf("after %s, changed objects (-want +got):\n%s", step.does, diff)
		}
		f.wantProblems()
	}
}

func TestFolderKeepsTheLastGoodVersionWhileAnObjectIsBad(t *testing.T) {
	f := newTestFolder(t)
	good := serviceYAML("web", "10.96.0.1")
	f.write("a.yaml", good)
	f.load()

	f.write("a.yaml", strings.Replace(good, "port: 80", "port: 70000", 1))
	if changed := f.load(); changed != nil {
		t.Errorf("a bad version changed %v", changed)
	}
	f.wantService("10.96.0.1")
	f.wantProblems(`a.yaml: Service default/web: spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`)

	f.load()
	f.wantService("10.96.0.1")
	if len(f.problems) != 1 {
		t.Errorf("problems = %q; want the one that is still true", f.problems)
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

func TestFolderKeepsWhatAFileHeldThatIsEmptiedUntilItIsWrittenOrDeleted(t *testing.T) {
	const emptied = "a.yaml: cannot be read: it is empty, as a file is that somebody begins to write; delete it to remove its objects"
	const broken = "a.yaml: must be a Kubernetes object, with apiVersion, kind and metadata (document at line 1)"
	f := newTestFolder(t)
	f.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f.write("never-held-anything.yaml", "")
	f.load()
	f.wantProblems()
	for _, step := range []struct {
		does      string
		change    func()
		clusterIP string
		problems  []string
	}{
		{"it is emptied", func() { f.write("a.yaml", "") }, "10.96.0.1", []string{emptied}},
		{"nothing more", func() {}, "10.96.0.1", []string{emptied}},
		{"it is written as it was", func() { f.write("a.yaml", serviceYAML("web", "10.96.0.1")) }, "10.96.0.1", nil},
		{"it is emptied again", func() { f.write("a.yaml", "") }, "10.96.0.1", []string{emptied}},
		{"it is written anew", func() { f.write("a.yaml", serviceYAML("web", "10.96.0.2")) }, "10.96.0.2", nil},
		{"it is emptied a third time", func() { f.write("a.yaml", "") }, "10.96.0.2", []string{emptied}},
		{"it breaks", func() { f.write("a.yaml", "kind") }, "10.96.0.2", []string{broken}},
		{"it is emptied after it broke", func() { f.write("a.yaml", "") }, "10.96.0.2", []string{emptied, broken}},
		{"it is deleted", func() { f.remove("a.yaml") }, "", nil},
	} {
		step.change()
		f.load()
		t.Run("after "+step.does, func(t *testing.T) {
			f.t = t
			f.wantService(step.clusterIP)
			f.wantProblems(step.problems...)
		})
		f.t = t
	}
}

func TestFolderLeavesOutAnObjectThatWasNeverGood(t *testing.T) {
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

func TestFolderKeepsWhatABrokenDocumentMayHold(t *testing.T) {
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

func TestFolderKeepsAnObjectThatMovedAndBroke(t *testing.T) {
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

func TestFolderLetsTheIncumbentKeepAnObjectThatTwoFilesDefine(t *testing.T) {
	f := newTestFolder(t)
	f.write("b.yaml", serviceYAML("web", "10.96.0.2"))
	f.write("c.yaml", serviceYAML("web", "10.96.0.3"))
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems(`c.yaml: Service default/web: metadata.name: Duplicate value: "web": also defined in b.yaml, whose version is in force`)

	f.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems(`a.yaml: Service default/web: metadata.name: Duplicate value: "web": also defined in b.yaml, whose version is in force`,
		`c.yaml: Service default/web: metadata.name: Duplicate value: "web": also defined in b.yaml, whose version is in force`)

	f.write("b.yaml", serviceYAML("web", "10.96.0.22"))
	f.load()
	f.wantService("10.96.0.22")

	f.remove("a.yaml")
	f.remove("b.yaml")
	f.load()
	f.wantService("10.96.0.3")
	f.wantProblems()
}

func TestFolderLetsTheIncumbentKeepAnObjectThatOneFileDefinesTwice(t *testing.T) {
	f := newTestFolder(t)
	one, two := serviceYAML("web", "10.96.0.1"), serviceYAML("web", "10.96.0.2")
	const twice = `a.yaml: Service default/web: metadata.name: Duplicate value: "web": ` +
		`defined twice in this file; the other version is in force`
	f.write("a.yaml", one+"---\n"+two)
	f.load()
	f.wantService("10.96.0.1")
	f.wantProblems(twice)
	f.write("a.yaml", two+"---\n"+one)
	f.load()
	f.wantService("10.96.0.1")
	f.wantProblems(twice)
	f.write("a.yaml", two)
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems()
}

func TestFolderReportsASliceUntilItsServiceAppears(t *testing.T) {
	f := newTestFolder(t)
	f.write("slice.yaml", sliceYAML("web-1", "web", "10.244.0.5"))
	f.load()
	f.wantProblems(`slice.yaml: EndpointSlice default/web-1: metadata.labels[kubernetes.io/service-name]: ` +
		`Not found: "web": there is no such Service in namespace "default"`)
	if _, there := f.state["EndpointSlice default/web-1"]; !there {
		t.Error("the slice was not handed over")
	}
	for name, service := range map[string]string{
		"a Service":             serviceYAML("web", "10.96.0.1"),
		"a headless Service":    serviceYAML("web", "None"),
		"a Service that is bad": serviceYAML("web", "x"),
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

func TestFolderStaysInForceWhileItCannotBeRead(t *testing.T) {
	f := newTestFolder(t)
	f.write("sub/a.yaml", serviceYAML("web", "10.96.0.1"))
	f.load()
	full := filepath.Join(f.dir, "sub/a.yaml")
	f.remove("sub/a.yaml")
	if err := os.Symlink("nowhere", full); err != nil {
		t.Fatal(err)
	}
	f.load()
	f.wantService("10.96.0.1")
	f.wantProblems("sub/a.yaml: cannot be read: no such file or directory")

	f.remove("sub/a.yaml")
	f.write("sub/a.yaml", serviceYAML("web", "10.96.0.2"))
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems()

	f.remove(".")
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems(".: cannot be read: no such file or directory")
	f.write("b.yaml", serviceYAML("other", "10.96.0.3"))
	f.load()
	f.wantService("")
	f.wantProblems()
}

func TestFolderThatCannotBeReadAtTheStartIsAnError(t *testing.T) {
	var folder Folder
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := folder.Load(missing)
	if want := fmt.Sprintf("reading the folder: stat %s: no such file or directory", missing); err == nil || err.Error() != want {
		t.Errorf("Load() error = %v, want %s", err, want)
	}
}

func TestFolderRefusesAFileThatIsTooLarge(t *testing.T) {
	f := newTestFolder(t)
	f.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f.write("huge.yaml", "")
	if err := os.Truncate(filepath.Join(f.dir, "huge.yaml"), maxFileSize+1); err != nil {
		t.Fatal(err)
	}
	f.load()
	f.wantService("10.96.0.1")
	f.wantProblems("huge.yaml: cannot be read: it has 268435457 bytes, and no more than 268435456 are read")
}

func TestFolderFollowsLinksAndNeverInCircles(t *testing.T) {
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

// randomText is a file of two Services, a slice and a ServiceCIDR, some of it changed, bad or broken.
func randomText(random *rand.Rand, file int, mayBeBad bool) string {
	var documents []string
	for i := range 2 {
		name := fmt.Sprintf("s%d-%d", file, i)
		if mayBeBad && random.IntN(4) == 0 {
			name = "shared"
		}
		text := serviceYAML(name, fmt.Sprintf("10.96.%d.%d", file, 1+random.IntN(3)))
		if mayBeBad && random.IntN(4) == 0 {
			text = strings.Replace(text, "port: 80", "port: 70000", 1)
		}
		if mayBeBad && random.IntN(6) == 0 {
			text = "a: [\n"
		}
		documents = append(documents, text)
	}
	documents = append(documents, serviceCIDRYAML(fmt.Sprintf("c%d", file), fmt.Sprintf("10.%d.0.0/16", random.IntN(3))))
	endpoint := fmt.Sprintf("10.244.0.%d", 1+random.IntN(9))
	documents = append(documents, sliceYAML(fmt.Sprintf("e%d", file), fmt.Sprintf("s%d-0", file), endpoint))
	random.Shuffle(len(documents), func(i, j int) { documents[i], documents[j] = documents[j], documents[i] })
	return strings.Join(documents, "---\n")
}

func TestFolderEndsUpWhereAFreshLoadWouldWhateverHappenedBefore(t *testing.T) {
	const files = 4
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		f := newTestFolder(t)
		f.load()
		for range 12 {
			for range 1 + random.IntN(2) {
				file := random.IntN(files)
				if name := fmt.Sprintf("f%d.yaml", file); random.IntN(4) == 0 {
					f.remove(name)
				} else {
					f.write(name, randomText(random, file, true))
				}
			}
			f.load()
		}
		for file := range files {
			f.remove(fmt.Sprintf("f%d.yaml", file))
			if random.IntN(4) > 0 {
				f.write(fmt.Sprintf("f%d.yaml", file), randomText(random, file, false))
			}
		}
		f.load()
		fresh := &testFolder{t: t, dir: f.dir, state: make(map[string]string)}
		fresh.load()
		if diff := cmp.Diff(fresh.state, f.state); diff != "" {
			t.Fatalf("seed %d: state (-fresh +followed):\n%s", seed, diff)
		}
		if len(f.problems)+len(fresh.problems) > 0 {
			t.Fatalf("seed %d: problems %q and %q, though nothing is bad", seed, f.problems, fresh.problems)
		}
		if len(slices.Collect(maps.Keys(fresh.state))) != len(fresh.folder.inForce) {
			t.Fatalf("seed %d: %d objects in force, %d handed over", seed, len(fresh.folder.inForce), len(fresh.state))
		}
	}
}
