package binaries

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/modfile"
)

// versionsIn returns the module versions in a go.mod, with replacements applied.
func versionsIn(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, entry := range parsed.Require {
		versions[entry.Mod.Path] = entry.Mod.Version
	}
	for _, entry := range parsed.Replace {
		versions[entry.Old.Path] = entry.New.Version
	}
	return versions
}

// TestSharedDependenciesHaveTheSameVersions compares the versions of shared dependencies. Go's build cache is keyed
// by the versions of all imports, so a different version means that a package is compiled twice.
func TestSharedDependenciesHaveTheSameVersions(t *testing.T) {
	moduleVersions := versionsIn(t, "../../../go.mod")
	for _, module := range []Module{Kubernetes, Etcd, CoreDNS, Categorize, XDS, Flannel, KubeRouter} {
		versions, shared := versionsIn(t, filepath.Join("..", "build", module.name, "go.mod")), 0
		for path, version := range versions {
			want, isShared := moduleVersions[path]
			if !isShared {
				continue
			}
			shared++
			if version != want {
				t.Errorf("%s requires %s %s, go.mod requires %s: update the older one with go get, then run go mod tidy",
					module.name, path, version, want)
			}
		}
		if shared == 0 {
			t.Errorf("%s shares no dependency with go.mod", module.name)
		}
	}
}
