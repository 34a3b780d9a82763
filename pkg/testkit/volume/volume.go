// Package volume keeps files as kubelet keeps those of a mounted ConfigMap or Secret: each is a link through another
// link, ..data, which an update replaces (k8s.io/kubernetes/pkg/volume/util/atomic_writer.go).
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
	// Dir is where it is mounted.
	Dir string

	versions int
}

// New returns an empty volume, which goes with the test.
func New(t testing.TB) *Volume {
	t.Helper()
	return &Volume{Dir: t.TempDir()}
}

// Path returns where a file of the volume is.
func (v *Volume) Path(file string) string { return filepath.Join(v.Dir, file) }

// Write replaces the files by others, all at once.
func (v *Volume) Write(t testing.TB, files map[string][]byte) {
	t.Helper()
	before := v.version()
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
	must.Succeed(t, os.RemoveAll(v.Path(before)))
}

// version is the folder of the files that are in place.
func (v *Volume) version() string { return fmt.Sprintf("..version-%d", v.versions) }
