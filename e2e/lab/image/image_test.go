package image_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
	"github.com/vicinity-proxy/vicinity/e2e/site"
)

// writeAndRead writes an image of a program and reads it back.
func writeAndRead(t *testing.T, user string) v1.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images.tar")
	if err := image.Write(file, image.Image{Name: "vicinity-proxy:lab", Program: site.Program(t, "pause"), User: user}); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("vicinity-proxy:lab")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestAnImageIsOneProgram(t *testing.T) {
	layers, err := writeAndRead(t, "").Layers()
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
	archive := tar.NewReader(content)
	header, err := archive.Next()
	if err != nil {
		t.Fatal(err)
	}
	if header.Name != "pause" || header.Mode != 0o755 || header.Uid != 0 {
		t.Errorf("layer contains %+v, want pause of root with mode 0755", header)
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("next file of the layer: got error %v, want EOF", err)
	}
}

func TestAProgramThatIsNotStaticIsRejected(t *testing.T) {
	shell, err := exec.LookPath("sh") // dynamic on every distribution
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{shell: "needs a dynamic linker", text: "read the program"} {
		err := image.Write(filepath.Join(t.TempDir(), "images.tar"), image.Image{Name: "vicinity-proxy:lab", Program: program})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: error %v, want %s", program, err, want)
		}
	}
}

func TestAnImageStartsItsProgramAsItsUser(t *testing.T) {
	config, err := writeAndRead(t, "65535:65535").ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/pause"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("the entry point differs (-want +got):\n%s", diff)
	}
	if config.Config.User != "65535:65535" || config.OS != "linux" {
		t.Errorf("user %q and system %q, want 65535:65535 and linux", config.Config.User, config.OS)
	}
}

func TestTheSameProgramMakesTheSameImage(t *testing.T) {
	first, err := writeAndRead(t, "").Digest()
	if err != nil {
		t.Fatal(err)
	}
	second, err := writeAndRead(t, "").Digest()
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("digests of two images of one program are %s and %s, want equal ones", first, second)
	}
}
