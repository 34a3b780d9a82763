package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

func TestFolderStaysAppliedWhileItCannotBeRead(t *testing.T) {
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

func TestFirstLoadOfAMissingFolderFails(t *testing.T) {
	var folder Folder
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := folder.Load(missing)
	if want := fmt.Sprintf("read the folder: stat %s: no such file or directory", missing); err == nil || err.Error() != want {
		t.Errorf("Load() error = %v, want %s", err, want)
	}
}

func TestFolderRejectsAFileThatIsTooLarge(t *testing.T) {
	f := newTestFolder(t)
	f.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f.write("huge.yaml", "")
	if err := os.Truncate(filepath.Join(f.dir, "huge.yaml"), manifest.MaxSize+1); err != nil {
		t.Fatal(err)
	}
	f.load()
	f.wantService("10.96.0.1")
	f.wantProblems("huge.yaml: cannot be read: larger than the limit of 268435456 bytes")
}
