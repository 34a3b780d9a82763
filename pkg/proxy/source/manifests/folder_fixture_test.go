package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// testFolder is a folder of manifests and the state of a consumer of its updates.
type testFolder struct {
	t        *testing.T
	dir      string
	folder   Folder
	state    map[string]string // object -> a value that distinguishes its versions
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

// epoch is the start of tests with their own clock.
var epoch = time.Unix(1_800_000_000, 0)

// loadAfter calls load at a time after the epoch.
func (f *testFolder) loadAfter(passed time.Duration) []string {
	f.t.Helper()
	update, err := f.folder.loadAt(f.dir, epoch.Add(passed))
	if err != nil {
		f.t.Fatal(err)
	}
	return f.apply(update)
}

// load loads the folder and applies the update, as the proxy does. It returns the objects in the update.
func (f *testFolder) load() []string {
	f.t.Helper()
	update, err := f.folder.Load(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.apply(update)
}

func (f *testFolder) apply(update convert.Update) []string {
	var changed []string
	set := func(key, value string, isDeleted bool) {
		changed = append(changed, key)
		if f.state[key] = value; isDeleted {
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
	for _, problem := range update.ResolvedProblems {
		if !slices.Contains(f.problems, problem.String()) {
			f.t.Errorf("resolved, but was not reported: %s", problem)
		}
		f.problems = slices.DeleteFunc(f.problems, func(line string) bool { return line == problem.String() })
	}
	for _, problem := range update.NewProblems {
		if slices.Contains(f.problems, problem.String()) {
			f.t.Errorf("reported twice: %s", problem)
		}
		f.problems = append(f.problems, problem.String())
	}
	slices.Sort(f.problems)
	slices.Sort(changed)
	return changed
}

// wantService asserts the active version of Service default/web; empty for none.
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
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), f.problems, cmpopts.EquateEmpty()); diff != "" {
		f.t.Errorf("problems (-want +got):\n%s", diff)
	}
}
