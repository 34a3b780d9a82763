package syncer_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// bystander returns a Service that is older than all others, so that no other one gets its ClusterIP.
func bystander() *model.Service {
	return &model.Service{
		Name:       model.ObjectName{Namespace: "kube-system", Name: "bystander"},
		Created:    time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
		ClusterIPs: addrs("10.111.0.1", "fd00:111::1"),
		Ports:      []model.ServicePort{{Protocol: model.TCP, Port: 443}},
	}
}

// manifest is a directory with one file.
type manifest struct {
	t      testing.TB
	dir    string
	folder manifests.Folder
}

// load writes the file, or deletes it if there is no text, and returns the change.
func (m *manifest) load(text []byte) model.Change {
	m.t.Helper()
	path := filepath.Join(m.dir, "objects.yaml")
	err := os.WriteFile(path, text, 0o600)
	if text == nil {
		err = os.Remove(path)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	loaded, err := m.folder.Load(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	return loaded.Change
}

// FuzzObjectToElement covers the whole path from the bytes of a file to the elements in the tables: the kernel in
// memory accepts everything that package source accepts, and the elements of an unrelated Service stay. The seeds are
// also tested with a real kernel, in TestEveryOddObjectReachesTheKernel.
//
// Run it with -fuzzminimizetime 5x: an input takes milliseconds, and the default, a minute for each interesting input,
// would leave little time for new ones.
func FuzzObjectToElement(f *testing.F) {
	names := oddNames()
	for i, name := range names {
		text := withOddity(f, name)
		f.Add([]byte(text), uint8(i))
		f.Add([]byte(addOddity(text, names[(i+7)%len(names)])), uint8(i+7)) // together with another one
	}
	f.Fuzz(func(t *testing.T, text []byte, configIndex uint8) {
		config, kernel := configurations[int(configIndex)%len(configurations)], &memoryKernel{}
		before := oneService(bystander(), nil).Merge(model.Change{LocalAddrs: nodeAddrs})
		p := syncer.New(self, config, kernel)
		p.Apply(before)
		mustSync(t, p)
		file := manifest{t: t, dir: t.TempDir()}
		change := file.load(append([]byte{}, text...)) // nil would mean that there is no file
		p.Apply(change)
		mustSync(t, p)
		checkTables(t, kernel, config)
		checkLikeFreshStartOf(t, self, config, kernel, before.Merge(change))
		if _, replaced := change.Services[bystander().Name]; !replaced {
			checkBystander(t, kernel, config)
		}

		after := file.load(nil)
		p.Apply(after)
		mustSync(t, p)
		checkLikeFreshStartOf(t, self, config, kernel, mergeAs(self, before.Merge(change), after))
	})
}

// TestEveryOddObjectReachesTheKernel: oddities of objects are resolved before the kernel sees them, or do not matter to
// it. Each configuration has its own real kernel, which gets one oddity after the other, alone and then with another
// one.
func TestEveryOddObjectReachesTheKernel(t *testing.T) {
	for first, config := range configurations {
		kernel, file := newRealKernel(t), manifest{t: t, dir: t.TempDir()}
		p := syncer.New(self, config, kernel)
		p.Apply(oneService(bystander(), nil).Merge(model.Change{LocalAddrs: nodeAddrs}))
		names := oddNames()
		for i := first; i < len(names); i += len(configurations) {
			text, next := withOddity(t, names[i]), names[(i+7)%len(names)]
			for _, name := range []string{names[i], names[i] + " and " + next} {
				p.Apply(file.load([]byte(text)))
				report := mustSync(t, p) // the Service "other" has no IPv6
				if slices.Contains(config.Families, model.IPv4) && report.Applied < 2 {
					t.Errorf("%s: %d Services are applied, want at least two", name, report.Applied)
				}
				checkTables(t, &kernel.model, config)
				checkBystander(t, &kernel.model, config)
				text = addOddity(text, next)
			}
			kernel.expectSameListing(t)
		}
	}
}

func checkBystander(t testing.TB, kernel *memoryKernel, config ruleset.Config) {
	t.Helper()
	for _, family := range config.Families {
		addr, _ := bystander().ClusterIP(family)
		want := ruleset.Tuple{Addr: addr, Proto: model.TCP, Port: 443}
		if !slices.ContainsFunc(elementsOf(t, kernel, family, ruleset.Services), func(e ruleset.Element) bool { return e.Key == want }) {
			t.Errorf("%s is not served any more", netip.AddrPortFrom(addr, 443))
		}
	}
}

func elementsOf(t testing.TB, kernel *memoryKernel, family model.Family, set ruleset.Set) []ruleset.Element {
	t.Helper()
	elements, err := kernel.Elements(family, set)
	if err != nil {
		t.Fatal(err)
	}
	return elements
}
