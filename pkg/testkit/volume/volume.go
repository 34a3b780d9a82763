// Package volume stores files like kubelet stores those of a mounted ConfigMap or Secret: each is a symbolic link
// through another link, ..data, which an update replaces (k8s.io/kubernetes/pkg/volume/util/atomic_writer.go).
package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// Volume is a mounted folder.
type Volume struct {
	// Dir is the path of the folder.
	Dir string

	versions int
}

// New returns an empty volume, which is deleted when the test ends.
func New(t testing.TB) *Volume {
	t.Helper()
	return &Volume{Dir: t.TempDir()}
}

// Path returns the path of a file of the volume.
func (v *Volume) Path(file string) string { return filepath.Join(v.Dir, file) }

// Write replaces all files atomically.
func (v *Volume) Write(t testing.TB, files map[string][]byte) {
	t.Helper()
	previous := v.version()
	v.versions++
	must.Succeed(t, os.MkdirAll(v.Path(v.version()), 0o700))
	for name, text := range files {
		must.Succeed(t, os.WriteFile(v.Path(filepath.Join(v.version(), name)), text, 0o600))
	}
	must.Succeed(t, os.Symlink(v.version(), v.Path("..data_tmp")))
	must.Succeed(t, os.Rename(v.Path("..data_tmp"), v.Path("..data")))
	for name := range files {
		if _, err := os.Lstat(v.Path(name)); os.IsNotExist(err) {
			must.Succeed(t, os.Symlink(filepath.Join("..data", name), v.Path(name)))
		}
	}
	must.Succeed(t, os.RemoveAll(v.Path(previous)))
}

// version returns the folder of the current files.
func (v *Volume) version() string { return fmt.Sprintf("..version-%d", v.versions) }
