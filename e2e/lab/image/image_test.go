package image_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// written writes an image of a program and reads it back.
func written(t *testing.T, user string) v1.Image {
	t.Helper()
	program := filepath.Join(t.TempDir(), "proxy")
	if err := os.WriteFile(program, []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "images.tar")
	if err := image.Write(file, image.Image{Name: "vicinity-proxy:lab", Program: program, User: user}); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("vicinity-proxy:lab")
	if err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestAnImageIsOneProgram(t *testing.T) {
	layers, err := written(t, "").Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 {
		t.Fatalf("%d layers, want one", len(layers))
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	header, err := tar.NewReader(content).Next()
	if err != nil {
		t.Fatal(err)
	}
	if header.Name != "proxy" || header.Mode != 0o755 || header.Size != int64(len("a program")) || header.Uid != 0 {
		t.Errorf("the layer holds %+v", header)
	}
}

func TestAnImageStartsItsProgramAsItsUser(t *testing.T) {
	config, err := written(t, "65535:65535").ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/proxy"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entry point (-want +got):\n%s", diff)
	}
	if config.Config.User != "65535:65535" || config.OS != "linux" {
		t.Errorf("user %q, system %q", config.Config.User, config.OS)
	}
}

func TestTheSameProgramMakesTheSameImage(t *testing.T) {
	first, err := written(t, "").Digest()
	if err != nil {
		t.Fatal(err)
	}
	second, err := written(t, "").Digest()
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("%s and then %s", first, second)
	}
}
