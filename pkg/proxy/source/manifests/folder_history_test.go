package manifests

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// randomText returns a file of two Services, a slice and a ServiceCIDR, some of them changed, invalid or broken.
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

func TestFolderMatchesAFreshLoadAfterRandomChanges(t *testing.T) {
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
			t.Fatalf("seed %d: state (-fresh +updated):\n%s", seed, diff)
		}
		if len(f.problems)+len(fresh.problems) > 0 {
			t.Fatalf("seed %d: problems %q and %q, want none", seed, f.problems, fresh.problems)
		}
		if len(slices.Collect(maps.Keys(fresh.state))) != len(fresh.folder.applied) {
			t.Fatalf("seed %d: %d active objects, %d delivered", seed, len(fresh.folder.applied), len(fresh.state))
		}
	}
}

// Two Services swap their files. The file that db leaves becomes active before the one that it enters, which was
// written later.
func TestObjectThatMovesToAnUnstableFileStays(t *testing.T) {
	f := newTestFolder(t)
	f.folder.isWatched = true
	f.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f.write("b.yaml", serviceYAML("db", "10.96.0.2"))
	f.loadAfter(0)
	const later = 50 * time.Millisecond
	for _, step := range []struct {
		desc    string
		change  func()
		at      time.Duration
		web, db string
	}{
		{"one file is new", func() { f.write("b.yaml", serviceYAML("web", "10.96.0.3")) }, 0, "10.96.0.1", "10.96.0.2"},
		{"the other is, too", func() { f.write("a.yaml", serviceYAML("db", "10.96.0.4")) }, later, "10.96.0.1", "10.96.0.2"},
		{"one file is stable", func() {}, stableAfter + later/2, "10.96.0.1", "10.96.0.2"},
		{"both files are stable", func() {}, stableAfter + later, "10.96.0.3", "10.96.0.4"},
	} {
		step.change()
		f.loadAfter(step.at)
		for name, clusterIP := range map[string]string{"web": step.web, "db": step.db} {
			if got, want := f.state["Service default/"+name], "["+clusterIP+"] [{ TCP 80 0}]"; got != want {
				t.Errorf("%s: %s is %q, want %q", step.desc, name, got, want)
			}
		}
	}
}
