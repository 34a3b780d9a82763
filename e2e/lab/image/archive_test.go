package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// releaseImage returns an image as a release builds it. The program pause stands for any static program.
func releaseImage(t *testing.T, name string) Image {
	t.Helper()
	return Image{
		Name: name, Program: filepath.Join("../../../bin", "pause"), User: "1:2", Architecture: "arm64",
		Created: time.Unix(1_700_000_000, 0).UTC(), Labels: map[string]string{"org.opencontainers.image.version": "v0.1.0"},
	}
}

func TestAnArchiveCanBePushed(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	reference := strings.TrimPrefix(server.URL, "http://") + "/vicinity-pause:v0.1.0"
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := WriteArchive(file, releaseImage(t, reference)); err != nil {
		t.Fatal(err)
	}
	loaded, err := crane.Load(file) // as `crane push` loads it
	if err != nil {
		t.Fatal(err)
	}
	if err := crane.Push(loaded, reference); err != nil {
		t.Fatal(err)
	}
	pulled, err := crane.Pull(reference)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pulled.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{User: "1:2", Entrypoint: []string{"/pause"}, Labels: map[string]string{"org.opencontainers.image.version": "v0.1.0"}}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("the configuration differs (-want +got):\n%s", diff)
	}
	if config.Architecture != "arm64" || config.OS != "linux" || config.Created.Unix() != 1_700_000_000 {
		t.Errorf("platform %s/%s, created %s, want linux/arm64 and 1700000000 (Unix time)", config.OS, config.Architecture, config.Created)
	}
}

func TestTheSameImageMakesTheSameArchive(t *testing.T) {
	folder := t.TempDir()
	var texts [2][]byte
	for i := range texts {
		file := filepath.Join(folder, "image.tar")
		if err := WriteArchive(file, releaseImage(t, "example.com/pause:v0.1.0")); err != nil {
			t.Fatal(err)
		}
		var err error
		if texts[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("two archives of one image differ")
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("leftover files next to the archive: %v", entries)
	}
}

func TestInvalidImageIsAnError(t *testing.T) {
	for want, invalid := range map[string]Image{
		"parse name of image": {Name: "UPPER CASE", Program: "../../../bin/pause"},
		"assemble image":      {Name: "example.com/x:y", Program: "there is none"},
	} {
		if err := WriteArchive(filepath.Join(t.TempDir(), "image.tar"), invalid); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// TestAnArchiveNamesItsImageAsNodesDo compares names because a pod whose image was loaded by another name fails with
// ErrImageNeverPull.
func TestAnArchiveNamesItsImageAsNodesDo(t *testing.T) {
	for image, want := range map[string]string{
		"pause:v1":                "docker.io/library/pause:v1",
		"docker.io/me/pause:v1":   "docker.io/me/pause:v1",
		"example.com/me/pause:v1": "example.com/me/pause:v1",
		"localhost:5000/pause:v1": "localhost:5000/pause:v1",
	} {
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := WriteArchive(file, releaseImage(t, image)); err != nil {
			t.Fatal(err)
		}
		var index struct {
			Manifests []struct{ Annotations map[string]string }
		}
		var docker []struct{ RepoTags []string }
		readJSON(t, file, "index.json", &index)
		readJSON(t, file, "manifest.json", &docker)
		if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != want {
			t.Errorf("%s: containerd calls it %s, want %s", image, got, want)
		}
		if got := docker[0].RepoTags[0]; got != want {
			t.Errorf("%s: docker calls it %s, want %s", image, got, want)
		}
	}
}

// readJSON reads a file of an archive.
func readJSON(t *testing.T, archive, name string, into any) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if err != nil {
			t.Fatalf("find %s in %s: %v", name, archive, err)
		}
		if header.Name == name {
			if err := json.NewDecoder(reader).Decode(into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}
