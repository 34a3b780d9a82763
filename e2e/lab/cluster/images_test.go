package cluster

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
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
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// root is the repository's root folder, relative to this package.
const root = "../../.."

// anyProgram returns a small static program that stands in for one of ours with that name.
func anyProgram(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(site.Program(t, "pause"))
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(path, text, 0o700))
	return path
}

// assembled writes an image to a file, as for containerd, and returns the image that the file contains.
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
	img, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// filesOf returns the contents of all layers of an image. It fails the test for anything but a file of root that all
// users may execute.
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
				t.Errorf("layer contains %+v, want only files of root with mode 0755", header)
			}
			if files["/"+header.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
	}
	return files
}

// ownImages are the programs whose images the lab builds as a Dockerfile does.
var ownImages = map[string]struct {
	dockerfile string
	image      func(program string) image.Image
}{
	"proxy":   {"Dockerfile.proxy", func(program string) image.Image { return image.Proxy(proxyName+":"+imageTag, program) }},
	"webhook": {"Dockerfile.webhook", func(program string) image.Image { return image.Webhook(webhookName+":"+imageTag, program) }},
}

// dockerfile returns the text of one of the repository's Dockerfiles.
func dockerfile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheLabsImagesAreThoseOfTheDockerfiles ensures that the suites' results in the lab hold for the images that users
// build.
func TestTheLabsImagesAreThoseOfTheDockerfiles(t *testing.T) {
	for name, our := range ownImages {
		t.Run(name, func(t *testing.T) {
			want, err := recipeOf(dockerfile(t, our.dockerfile))
			if err != nil {
				t.Fatal(err)
			}
			program := anyProgram(t, name)
			built := assembled(t, our.image(program))
			config, err := built.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			// A base image would add files of its own.
			if want.Base != "scratch" {
				t.Errorf("Dockerfile has base image %s, want scratch", want.Base)
			}
			if diff := cmp.Diff(v1.Config{User: want.User, Entrypoint: want.Entrypoint}, config.Config); diff != "" {
				t.Errorf("the configurations differ (-Dockerfile +lab):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"/" + name: "/src/bin/" + name}, want.Files); diff != "" {
				t.Errorf("files that the Dockerfile copies, with their sources (-want +got):\n%s", diff)
			}
			content, err := os.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			got := filesOf(t, built)
			if len(got) != 1 || !bytes.Equal(content, got["/"+name]) {
				t.Errorf("the lab's image has %d files, /%s has %d bytes; want only this file, with %d bytes",
					len(got), name, len(got["/"+name]), len(content))
			}
		})
	}
}

// buildCommand returns the command line that builds a program of bin, as printed by a dry run of make.
func buildCommand(t *testing.T, program, name string, arguments ...string) string {
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
		if strings.Contains(line, "-o bin/"+program+" ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) != 1 {
		t.Fatalf("%s: lines %q build bin/%s, want exactly one in\n%s", command, lines, program, output)
	}
	return lines[0]
}

// TestTheLabsProgramsAreBuiltAsTheDockerfilesAre compares the build commands. Package manifests runs the Dockerfiles'
// commands and checks the binaries.
func TestTheLabsProgramsAreBuiltAsTheDockerfilesAre(t *testing.T) {
	for name, own := range ownImages {
		t.Run(name, func(t *testing.T) {
			var runs []string
			for _, next := range instructionsOf(dockerfile(t, own.dockerfile)) {
				if next.name == "RUN" {
					isMount := func(word string) bool { return strings.HasPrefix(word, "--mount=") }
					runs = append(runs, strings.Join(slices.DeleteFunc(strings.Fields(next.arguments), isMount), " "))
				}
			}
			if len(runs) != 1 {
				t.Fatalf("the Dockerfile runs %q, want one command", runs)
			}
			want := buildCommand(t, name, "sh", "-euc", runs[0])
			if !strings.Contains(want, "CGO_ENABLED=0 ") || !strings.Contains(want, "v1.2.3") {
				t.Errorf("the Dockerfile's command is %q, want one for a static binary with its version", want)
			}
			for _, target := range []string{"lab", "e2e"} {
				if got := buildCommand(t, name, "make", target); got != want {
					t.Errorf("make %s builds with\n%s\nand the Dockerfile with\n%s", target, got, want)
				}
			}
		})
	}
}
