package node

import (
	"os"
	"path/filepath"
	"testing"
)

func TestImagesAreSharedAndDatabasesAreNot(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "containerd")
	blob, database := filepath.Join("content", "blob"), "meta.db"
	for _, name := range []string{blob, database} {
		if err := writeFile(filepath.Join(from, name), file{[]byte("before"), 0o600}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(from, "content"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(blob, filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := cloneImages(from, to); err != nil {
		t.Fatal(err)
	}
	for name, shared := range map[string]bool{blob: true, database: false} {
		if got := sameFile(t, filepath.Join(from, name), filepath.Join(to, name)); got != shared {
			t.Errorf("%s is shared: %t, want %t", name, got, shared)
		}
		content, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(content) != "before" {
			t.Errorf("content of %s is %q (error %v), want before", name, content, err)
		}
	}
	folder, err := os.Stat(filepath.Join(to, "content"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := folder.Mode().Perm(); mode != 0o711 {
		t.Errorf("mode of the folder is %o, want 711", mode)
	}
	if target, err := os.Readlink(filepath.Join(to, "link")); err != nil || target != blob {
		t.Errorf("the link leads to %q (error %v), want %q", target, err, blob)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	first, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(first, second)
}
