package cluster

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// root is the repository's top folder, seen from this package.
const root = "../../.."

// anyProgram builds a static program, which stands for the proxy. It is not the proxy, for that takes long.
func anyProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../image/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, output)
	}
	return path
}

// assembled is an image, read back from what containerd takes in.
func assembled(t *testing.T, recipe image.Image) v1.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images.tar")
	if err := image.Write(file, recipe); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(recipe.Name)
	if err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// filesOf returns what all layers of an image hold. Anything but a file of root that everybody may run fails the test.
func filesOf(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		for archive := tar.NewReader(content); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if header.Typeflag != tar.TypeReg || header.Mode != 0o755 || header.Uid != 0 || header.Gid != 0 {
				t.Errorf("the layer holds %+v", header)
			}
			if files["/"+header.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
	}
	return files
}

// TestTheLabsImageIsThatOfTheDockerfile: what the suites prove in the lab is proved for the image that users build.
func TestTheLabsImageIsThatOfTheDockerfile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile.proxy"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := recipeOf(string(text))
	if err != nil {
		t.Fatal(err)
	}
	program := anyProgram(t)
	built := assembled(t, proxyImage(program))
	config, err := built.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	// A base image would bring files of its own.
	if want.Base != "scratch" {
		t.Errorf("the Dockerfile begins with %s, and the lab with nothing", want.Base)
	}
	if diff := cmp.Diff(v1.Config{User: want.User, Entrypoint: want.Entrypoint}, config.Config); diff != "" {
		t.Errorf("configuration (-Dockerfile +lab):\n%s", diff)
	}
	got := filesOf(t, built)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want.Files)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("files (-Dockerfile +lab):\n%s", diff)
	}
	if from := want.Files["/proxy"]; from != "/src/bin/proxy" {
		t.Errorf("the Dockerfile copies %q to /proxy, and the lab bin/proxy", from)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, got["/proxy"]) {
		t.Errorf("/proxy has %d bytes, and is not the program of %d", len(got["/proxy"]), len(content))
	}
}

// buildCommand returns the line with which a command would build bin/proxy, if make were to run what it says.
func buildCommand(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, arguments...)
	command.Dir = root
	command.Env = append(os.Environ(), "MAKEFLAGS=n", "TARGETOS=", "TARGETARCH=", "VERSION=v1.2.3")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	var lines []string
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "-o bin/proxy ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) != 1 {
		t.Fatalf("%s: lines %q build bin/proxy, want one of\n%s", command, lines, output)
	}
	return lines[0]
}

// TestTheLabsProxyIsBuiltAsTheDockerfilesIs: package manifests runs the Dockerfile's command, and looks at the binary.
func TestTheLabsProxyIsBuiltAsTheDockerfilesIs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile.proxy"))
	if err != nil {
		t.Fatal(err)
	}
	var runs []string
	for _, next := range instructionsOf(string(text)) {
		if next.name == "RUN" {
			words := slices.DeleteFunc(strings.Fields(next.arguments), func(word string) bool { return strings.HasPrefix(word, "--mount=") })
			runs = append(runs, strings.Join(words, " "))
		}
	}
	if len(runs) != 1 {
		t.Fatalf("the Dockerfile runs %q, want one command", runs)
	}
	want := buildCommand(t, "sh", "-euc", runs[0])
	if !strings.Contains(want, "CGO_ENABLED=0 ") || !strings.Contains(want, "v1.2.3") {
		t.Errorf("the Dockerfile's command is %q, want one for a static binary that knows its version", want)
	}
	for _, target := range []string{"lab", "e2e"} {
		if got := buildCommand(t, "make", target); got != want {
			t.Errorf("make %s builds by\n%s\nand the Dockerfile by\n%s", target, got, want)
		}
	}
}
