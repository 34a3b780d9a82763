package image

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestARegistryHasWhatItsManifestNames checks that the tag refers to a manifest, and that each file has the digest that
// its path contains.
func TestARegistryHasWhatItsManifestNames(t *testing.T) {
	folder := t.TempDir()
	if err := WriteRegistry(folder, releaseImage(t, "pause:testing")); err != nil {
		t.Fatal(err)
	}
	read := func(parts ...string) []byte {
		text, err := os.ReadFile(filepath.Join(append([]string{folder, "pause"}, parts...)...))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	find := func(kind, digest string) []byte {
		_, hex, _ := strings.Cut(digest, ":")
		content := read(kind, "sha256", hex[:2], hex, "data")
		if got, _, err := v1.SHA256(bytes.NewReader(content)); err != nil || got.String() != digest {
			t.Errorf("content of %s has digest %s (error %v)", digest, got, err)
		}
		return content
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(find("manifests", string(read("manifests", "testing")))))
	if err != nil {
		t.Fatal(err)
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(find("blobs", manifest.Config.Digest.String())))
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || len(config.RootFS.DiffIDs) != 1 || config.Config.Entrypoint[0] != "/pause" {
		t.Errorf("manifest %+v and configuration %+v, want one layer and the entry point /pause", manifest, config)
	}
	find("blobs", manifest.Layers[0].Digest.String())
}
